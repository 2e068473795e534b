"""Reads the file of a trace in its format, and recognises the format."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path

from sim.core.errors import InputError
from sim.core.packed import open_unpacked
from sim.core.paths import located
from sim.workload.config import BAILIAN_BLOCK_SIZE, DEFAULT_BLOCK_SIZE, TraceConfig
from sim.workload.traces import FORMATS, TraceFormat, azure, burstgpt
from sim.workload.traces.files import read_json_items
from sim.workload.traces.rows import TraceRows

TraceReader = Callable[[TraceConfig, Path], TraceRows]


def read_trace(config: TraceConfig, base_dir: Path) -> TraceRows:
    """Read and check the file.

    Args:
        config: the trace; only `path` and the keys of `READ_KEYS` are used.
        base_dir: folder that paths are relative to.

    Raises:
        InputError: the file or a line is bad.
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


_SCENARIOS = (".yaml", ".yml")
_TRACES = (".csv", ".jsonl", ".gz")
_HEADERS: dict[str, TraceFormat] = {
    **dict.fromkeys(azure.HEADERS, "azure"),
    **dict.fromkeys(burstgpt.HEADERS, "burstgpt"),
}
_OUTPUT_KEYS = frozenset({"output_len", "max_tokens", "max_completion_tokens", "completion_tokens"})
# The first format of which a row has all keys of a set is that of the file.
_KEYS: tuple[tuple[TraceFormat, tuple[frozenset[str], ...]], ...] = (
    ("bailian", (frozenset({"chat_id", "input_length"}),)),
    ("mooncake", (frozenset({"input_length"}),)),
    ("servetwin", (frozenset({"segments"}), frozenset({"input_ids"}))),
    ("weka", (frozenset({"requests", "block_size"}),)),
    ("sharegpt", (frozenset({"conversations"}),)),
    ("autobench", (frozenset({"prompt"}), frozenset({"prompt_origin"}),
                   frozenset({"prompt_len"}), frozenset({"system", "content"}))),
    ("lmsys", (frozenset({"conversation"}), frozenset({"messages"}))),
)  # fmt: skip


def recognise(path: Path) -> TraceFormat | None:
    """The format of a trace; None: the file may be a scenario.

    Raises:
        InputError: the file cannot be read, or is a trace in no known format.
    """
    if path.suffix in _SCENARIOS:
        return None
    if path.is_dir():
        return "weka"
    found = _of_content(path)
    if found is None and path.name.endswith(_TRACES):
        known = ", ".join(FORMATS)
        raise InputError(f"{path}: is a trace in no known format (--from names it: {known})")
    return found


def _of_content(path: Path) -> TraceFormat | None:
    with open_unpacked(path) as unpacked:
        begin = next(unpacked.parts(), b"").decode("utf-8-sig", "replace").lstrip()
    header = _HEADERS.get(begin.partition("\n")[0].rstrip("\r"))
    if header is not None or not begin.startswith(("{", "[")):
        return header
    try:
        _, row = next(read_json_items(path))
    except (InputError, StopIteration):
        return None
    return _by_keys(row.keys())


def _by_keys(keys: AbstractSet[str]) -> TraceFormat | None:
    if "messages" in keys and keys & _OUTPUT_KEYS:
        return "autobench"
    found = (name for name, sets in _KEYS if any(known <= keys for known in sets))
    return next(found, None)
