"""Reads the file of a trace in its format."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sim.core.files import located
from sim.workload.config import BAILIAN_BLOCK_SIZE, DEFAULT_BLOCK_SIZE, TraceConfig
from sim.workload.traces.rows import TraceRows

TraceReader = Callable[[TraceConfig, Path], TraceRows]


def read_trace(config: TraceConfig, base_dir: Path) -> TraceRows:
    """Read and check the file.

    Args:
        config: the trace; only `path` and the keys of `READ_KEYS` are used.
        base_dir: folder that paths are relative to.
    """
    path = located(base_dir, config.path)
    match config.format:
        case "mooncake":
            from sim.workload.traces.block_traces import read_mooncake

            block_size = config.block_size or DEFAULT_BLOCK_SIZE
            rows = read_mooncake(path, limit=config.limit, block_size=block_size)
        case "azure":
            from sim.workload.traces.csv_traces import read_azure

            rows = read_azure(path, limit=config.limit)
        case "servetwin":
            from sim.workload.traces.servetwin import read_servetwin

            rows = read_servetwin(path, limit=config.limit)
        case "autobench":
            from sim.workload.traces.autobench import read_autobench

            rows = read_autobench(path, limit=config.limit)
        case "burstgpt":
            from sim.workload.traces.csv_traces import read_burstgpt

            rows = read_burstgpt(path, limit=config.limit)
        case "bailian":
            from sim.workload.traces.block_traces import read_bailian

            block_size = config.block_size or BAILIAN_BLOCK_SIZE
            rows = read_bailian(path, limit=config.limit, block_size=block_size)
        case "weka":
            from sim.workload.traces.weka import read_weka

            rows = read_weka(path, limit=config.limit)
        case "sharegpt" | "lmsys":
            from sim.workload.traces.conversations import read_conversations
            from sim.workload.traces.text_tokens import text_counter

            to_ids, note = text_counter(config, base_dir)
            rows = read_conversations(
                path, config.format, to_ids, limit=config.limit, max_turns=config.max_turns
            )
            rows = replace(rows, notes=(note, *rows.notes))
    return rows
