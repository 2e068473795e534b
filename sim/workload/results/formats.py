"""How a file is known to be of a format, and read."""

import re
from pathlib import Path

from sim.core.errors import InputError
from sim.sglang.results.dump import find_dumps
from sim.sglang.results.log import is_event
from sim.workload.results.llmservingsim import find_requests
from sim.workload.results.model import ImportedRun, ReadOptions
from sim.workload.results.names import ResultFormat
from sim.workload.traces.lines import read_lines

_HEAD = 1 << 18
_KEY = re.compile(r'"(\w+)"\s*:', re.ASCII)
_PICKLE = b"\x80"


_BENCHES = (ResultFormat.SGLANG_BENCH, ResultFormat.VLLM_BENCH)
# Keys that results have, any of these sets; looked for in this order.
_KEYS = (
    (ResultFormat.AIPERF, ({"metadata", "metrics", "request_start_ns"},)),
    (ResultFormat.VLLM_BENCH, ({"endpoint_type"}, {"backend", "burstiness"})),
    (ResultFormat.SGLANG_BENCH, ({"backend", "dataset_name"}, {"sharegpt_output_len"})),
)


def sniff(path: Path) -> ResultFormat:
    """Tell a format by what is in the file, or in the folder.

    Raises:
        InputError: it cannot be read, or is none of them.
    """
    found = _sniff_folder(path) if path.is_dir() else _sniff_file(path)
    if found is None:
        known = ", ".join(ResultFormat)
        raise InputError(f"{path}: none of the known results: {known} (--format says which it is)")
    return found


def read_results(path: Path, format_: ResultFormat, options: ReadOptions) -> ImportedRun:
    """Read a measured run.

    Raises:
        InputError: the file, the folder, or a line in it; an option that the format has no use for.
    """
    if not path.exists():
        raise InputError(f"{path}: cannot be read: No such file or directory")
    if format_ in _BENCHES:
        return _read_bench(path, format_, options)
    for option, value in zip(("--line", "--draw-arrivals"), options, strict=True):
        if value is not None:
            benches = " and ".join(_BENCHES)
            raise InputError(f"{option}: goes with {benches} only, and {path} is {format_}")
    return _read(path, format_)


def _read_bench(path: Path, format_: ResultFormat, options: ReadOptions) -> ImportedRun:
    if format_ is ResultFormat.SGLANG_BENCH:
        from sim.sglang.results.bench import read_sglang_bench

        return read_sglang_bench(path, options)
    from sim.vllm.results import read_vllm_bench

    return read_vllm_bench(path, options)


def _read(path: Path, format_: ResultFormat) -> ImportedRun:
    match format_:
        case ResultFormat.AIPERF:
            from sim.workload.results.aiperf import read_aiperf as read
        case ResultFormat.SGLANG_LOG:
            from sim.sglang.results.log import read_sglang_log as read
        case ResultFormat.SGLANG_DUMP:
            from sim.sglang.results.dump import read_sglang_dump as read
        case _:
            from sim.workload.results.llmservingsim import read_llmservingsim as read
    return read(path)


def _sniff_folder(path: Path) -> ResultFormat | None:
    if find_requests(path):
        return ResultFormat.LLMSERVINGSIM
    return ResultFormat.SGLANG_DUMP if find_dumps(path) else None


def _sniff_file(path: Path) -> ResultFormat | None:
    try:
        with path.open("rb") as file:
            if file.read(1) == _PICKLE:
                return ResultFormat.SGLANG_DUMP
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    keys: set[str] = set()
    num_seen = 0
    for line in read_lines(path):
        if num_seen < _HEAD and not line.text.startswith("["):
            keys |= set(_KEY.findall(line.text[: _HEAD - num_seen]))
            num_seen += len(line.text)
            for found, sets in _KEYS:
                if any(needed <= keys for needed in sets):
                    return found
        if is_event(line.text):
            return ResultFormat.SGLANG_LOG
    return None
