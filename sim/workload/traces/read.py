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
    from sim.workload.traces.autobench import read_autobench
    from sim.workload.traces.block_traces import read_bailian, read_mooncake
    from sim.workload.traces.conversations import read_conversations
    from sim.workload.traces.csv_traces import read_azure, read_burstgpt
    from sim.workload.traces.servetwin import read_servetwin
    from sim.workload.traces.text_tokens import text_counter
    from sim.workload.traces.weka import read_weka

    path, limit = located(base_dir, config.path), config.limit
    if config.format in ("sharegpt", "lmsys"):
        to_ids, note = text_counter(config, base_dir)
        rows = read_conversations(
            path, config.format, to_ids, limit=limit, max_turns=config.max_turns
        )
        return replace(rows, notes=(note, *rows.notes))
    if config.format == "mooncake":
        return read_mooncake(path, limit=limit, block_size=config.block_size or DEFAULT_BLOCK_SIZE)
    if config.format == "bailian":
        return read_bailian(path, limit=limit, block_size=config.block_size or BAILIAN_BLOCK_SIZE)
    readers = {
        "azure": read_azure,
        "servetwin": read_servetwin,
        "autobench": read_autobench,
        "burstgpt": read_burstgpt,
        "weka": read_weka,
    }
    return readers[config.format](path, limit=limit)
