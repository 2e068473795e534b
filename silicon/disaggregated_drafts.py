"""Judges disaggregated servers that speculated, or may have.

For some measurements two recipes fit, one with drafts and one without. Such a row is simulated both
ways. Which of the two it was is told by the measurements alone: if several of the same servers with
the same load differ, the faster ones speculated.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from silicon.facts import Row
from silicon.page import errors_cell, table_of
from silicon.scores import QUANTITIES, judged
from silicon.simulate import RowOutcome

# Runs of one recipe differ by up to 13 % in TPOT (B200, eight GPUs of a server, 64 requests).
_LEAST_RATIO = 1.15
_HEADER = ("did they speculate?", "simulated", "GPU", "half", "rows", *QUANTITIES)


def cases(row: Row) -> tuple[Row, ...]:
    """The row as it is simulated: twice if it is not known whether its servers speculated."""
    if row["speculated"] != "unknown":
        return (row,)
    return row.as_if(speculated=False), row.as_if(speculated=True)


def told(rows: Iterable[Row]) -> dict[str, str]:
    """For each row of which it is unknown: `yes`, `no`, or `not told`, by its id."""
    groups: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row.is_disaggregated and row["speculated"] != "yes":
            names = ("prefill", "decode", "system", "precision", "isl", "osl", "concurrency")
            groups[tuple(row[name] for name in names)].append(row)
    answers = {}
    for group in groups.values():
        low, high = (bound(row.tpot_ms for row in group) for bound in (min, max))
        middle = math.sqrt(low * high)
        for row in group:
            if row["speculated"] == "unknown":
                answer = "yes" if row.tpot_ms < middle else "no"
                answers[row.id] = answer if high / low >= _LEAST_RATIO else "not told"
    return answers


def board(rows: Sequence[Row], outcomes: Mapping[str, RowOutcome]) -> str:
    """The table of errors, by what is known, GPU and half."""
    answers = told(rows)
    groups = {
        ("yes, by the recipe", "with drafts"): [row for row in rows if row["speculated"] == "yes"]
    }
    shown = {"yes": (True,), "no": (False,), "not told": (False, True)}
    for answer, ways in shown.items():
        for way in ways:
            title = answer if answer == "not told" else f"{answer}, by another measurement"
            groups[title, "with drafts" if way else "without"] = [
                row.as_if(speculated=way) for row in rows if answers.get(row.id) == answer
            ]
    return table_of(_HEADER, _lines(groups, outcomes))


def _lines(
    groups: Mapping[tuple[str, str], Sequence[Row]], outcomes: Mapping[str, RowOutcome]
) -> Iterator[Sequence[str]]:
    for names, rows in groups.items():
        for system in sorted({row["system"] for row in rows}):
            for half in ("development", "held-out"):
                wanted = [r for r in rows if (r["system"], r["split"]) == (system, half)]
                if wanted:
                    points = judged(wanted, outcomes)
                    cells = [errors_cell(points, quantity) for quantity in QUANTITIES]
                    yield *names, system, half, f"{len(points)} of {len(wanted)}", *cells
