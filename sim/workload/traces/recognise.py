"""Recognises the format of a trace by its first row."""

from collections.abc import Set as AbstractSet
from pathlib import Path

from sim.core.errors import InputError
from sim.core.packed import open_unpacked
from sim.workload.traces import FORMATS, TraceFormat
from sim.workload.traces.csv_traces import AZURE_HEADERS, BURSTGPT_HEADERS
from sim.workload.traces.files import read_json_items

_SCENARIOS = (".yaml", ".yml")
_TRACES = (".csv", ".jsonl", ".gz")
_HEADERS: dict[str, TraceFormat] = {
    **dict.fromkeys(AZURE_HEADERS, "azure"),
    **dict.fromkeys(BURSTGPT_HEADERS, "burstgpt"),
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
    """The format of a trace; None: the file may be a scenario."""
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
