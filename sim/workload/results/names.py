"""The formats of results that can be imported: facts that load nothing, for the command line."""

from collections.abc import Sequence
from typing import NamedTuple


class ResultFormat(NamedTuple):
    """One format.

    Attributes:
        name: as `--format` takes it.
        reader: `module:function` that reads it, loaded when it is needed.
        is_bench: a benchmark's output with one run a line: it takes `--line` and `--draw-arrivals`.
        key_sets: a file of JSON objects is of this format if it has all keys of one of these sets.
        first_byte: the file's first byte, if that is enough to tell.
        line_test: `module:function` that tells by a line of text; empty: there is none.
        folder_test: `module:function` that tells a folder of this format; empty: there is none.
    """

    name: str
    reader: str
    is_bench: bool = False
    key_sets: Sequence[frozenset[str]] = ()
    first_byte: bytes = b""
    line_test: str = ""
    folder_test: str = ""


AIPERF = ResultFormat(
    "aiperf",
    "sim.workload.results.aiperf:read_aiperf",
    key_sets=(frozenset({"metadata", "metrics", "request_start_ns"}),),
)
