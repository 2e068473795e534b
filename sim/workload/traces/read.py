"""Reads the file of a trace in its format."""

from collections.abc import Callable
from pathlib import Path

from sim.core.paths import located
from sim.workload.config import DEFAULT_BLOCK_SIZE, TraceConfig
from sim.workload.traces.rows import TraceRows

TraceReader = Callable[[TraceConfig, Path], TraceRows]


def read_trace(config: TraceConfig, base_dir: Path) -> TraceRows:
    """Read and check the file.

    Args:
        config: the trace; only `format`, `path`, `limit` and `block_size` are used.
        base_dir: folder that the path is relative to.

    Raises:
        InputError: the file or a line is bad.
    """
    path = located(base_dir, config.path)
    match config.format:
        case "mooncake":
            from sim.workload.traces.mooncake import read_mooncake

            block_size = config.block_size or DEFAULT_BLOCK_SIZE
            return read_mooncake(path, limit=config.limit, block_size=block_size)
        case "azure":
            from sim.workload.traces.azure import read_azure

            return read_azure(path, limit=config.limit)
        case "servetwin":
            from sim.workload.traces.servetwin import read_servetwin

            return read_servetwin(path, limit=config.limit)
        case "autobench":
            from sim.workload.traces.autobench import read_autobench

            return read_autobench(path, limit=config.limit)
