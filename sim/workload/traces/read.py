"""Reads the file of a trace in its format, and recognises the format by its first row."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sim.core.errors import InputError
from sim.core.files import located
from sim.core.packed import open_unpacked
from sim.workload import FORMATS, TraceFormat
from sim.workload.config import BAILIAN_BLOCK_SIZE, DEFAULT_BLOCK_SIZE, TraceConfig

if TYPE_CHECKING:
    from sim.workload.traces.rows import TraceRows

TraceReader = Callable[[TraceConfig, Path], "TraceRows"]


def read_trace(config: TraceConfig, base_dir: Path) -> "TraceRows":
    """Read and check the file. Of its configuration, `path` and the keys of `READ_KEYS` matter."""
    from sim.workload.traces.block_traces import read_bailian, read_mooncake
    from sim.workload.traces.csv_traces import read_azure, read_burstgpt
    from sim.workload.traces.servetwin import read_servetwin
    from sim.workload.traces.text_tokens import text_counter
    from sim.workload.traces.text_traces import read_autobench, read_conversations
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


_SCENARIOS = (".yaml", ".yml")
_TRACES = (".csv", ".jsonl", ".gz")
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
    """The format of a trace; None: by its name or content the file is none.

    Raises InputError: the name is that of a trace, but the content is in no known format.
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
    from sim.workload.traces.csv_traces import AZURE_HEADERS, BURSTGPT_HEADERS
    from sim.workload.traces.files import read_json_items

    with open_unpacked(path) as unpacked:
        begin = next(unpacked.parts(), b"").decode("utf-8-sig", "replace").lstrip()
    header = begin.partition("\n")[0].rstrip("\r")
    if header in AZURE_HEADERS:
        return "azure"
    if header in BURSTGPT_HEADERS:
        return "burstgpt"
    if not begin.startswith(("{", "[")):
        return None
    try:
        _, row = next(read_json_items(path))
    except (InputError, StopIteration):
        return None
    keys = row.keys()
    if "messages" in keys and keys & _OUTPUT_KEYS:
        return "autobench"
    found = (name for name, sets in _KEYS if any(known <= keys for known in sets))
    return next(found, None)
