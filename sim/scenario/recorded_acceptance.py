"""Reads how many tokens the steps of a recorded run drafted and accepted."""

from collections.abc import Iterable
from pathlib import Path

from sim.core.errors import InputError
from sim.engine.acceptance import RecordedAcceptance
from sim.runlog.json_lines import Line

_MOST = 1024
_KEYS = "accepted", "proposed"
# Those of a run log, whose `accepted` is a sum.
_LOG_KEYS = "accepted_by_step", "proposed_by_step"


def recorded_acceptance(
    rows: Iterable[tuple[int, Line]], path: Path, *, looks_up: bool
) -> RecordedAcceptance:
    """The lists of all requests.

    Args:
        rows: the file's lines with their numbers. Of a run log, only requests count, and of these
            only those that had a step with drafts.
        path: the file, for errors.
        looks_up: drafts are looked up, so there may be fewer than the server asks for.

    Raises:
        InputError: a line is bad, or the file has none.
    """
    accepted: dict[str, list[int]] = {}
    proposed: dict[str, list[int]] = {}
    for number, row in rows:
        where = f"{path}:{number}"
        kept, found = _LOG_KEYS if "kind" in row else _KEYS
        if "kind" in row and not (row["kind"] == "req" and row.get(kept)):
            continue
        rid = row.get("rid")
        if not isinstance(rid, str) or not row.get(kept):
            raise InputError(f"{where}: needs a rid, and {kept}, a list of counts")
        accepted[rid] = _counts(row, kept, where)
        if found in row:
            proposed[rid] = _counts(row, found, where)
            if len(proposed[rid]) != len(accepted[rid]):
                raise InputError(f"{where}: {found} and {kept} differ in length")
    if not accepted:
        raise InputError(f"{path}: has no lines")
    if proposed and not looks_up:
        raise InputError(
            f"{path}: has numbers of proposed tokens, which are for method ngram alone"
        )
    if proposed and len(proposed) < len(accepted):
        missing = next(rid for rid in accepted if rid not in proposed)
        raise InputError(f"{path}: request {missing} has no proposed, but others have")
    return RecordedAcceptance(accepted, proposed or None)


def _counts(row: Line, key: str, where: str) -> list[int]:
    counts = row[key]
    if not isinstance(counts, list):
        raise InputError(f"{where}: needs a rid, and {key}, a list of counts")
    if not all(type(count) is int and 0 <= count <= _MOST for count in counts):
        raise InputError(f"{where}: {key} has something else than counts up to {_MOST}")
    return counts
