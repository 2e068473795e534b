"""Points of an earlier, interrupted profile, which a second call of `realrun profile` keeps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from realrun.profiling.composition import Composition
from sim.core.errors import InputError, say
from sim.core.files import allow_update
from sim.core.packed import Line
from sim.runlog.run_log_file import read_run_log

Key = tuple[tuple[tuple[int, int], ...], int, int, int]

# The measurements can be continued if these are equal.
_SAME = ("fingerprint", "limits", "options", "page_size", "seed", "repeats", "graph_sizes")


def earlier_points(path: Path, meta: Mapping[str, Any]) -> dict[Key, Line]:
    """The complete points of the log at `path`, by their compositions.

    A point is complete if it has all its repeats. There are none if there is no log, or if it was
    measured in another way, which is said.
    """
    if not path.exists():
        return {}
    try:
        log = read_run_log(path)
    except InputError as error:
        say(f"{error}; it is measured again")
        return {}
    finally:
        allow_update(path)
    for key in _SAME:
        if _comparable(log.meta, key) != _comparable(meta, key):
            say(f"{path}: another {key} than now: it is measured again")
            return {}
    return {
        _key_of_line(line): {"kind": "point", **line}
        for line in log.points
        if line["repeats"] >= meta["repeats"]
    }


def key_of(composition: Composition) -> Key:
    """What a log's line tells of a composition."""
    return (
        composition.prefill,
        len(composition.decode_contexts),
        composition.num_context_tokens,
        max(composition.decode_contexts, default=0),
    )


def _comparable(meta: Mapping[str, Any], key: str) -> object:
    """The value of a key; of the limits all but the pool, which depends on the free memory."""
    value = meta.get(key)
    if key == "limits" and isinstance(value, Mapping):
        return {name: limit for name, limit in value.items() if name != "num_pages"}
    return value


def _key_of_line(line: Line) -> Key:
    prefill = tuple((prefix, extend) for _, prefix, extend in line["prefill"])
    return prefill, line["n_decode"], line["ctx"], line["max_decode_ctx"]
