"""How far off simulations are, by model, GPU and engine."""

from collections.abc import Iterable, Sequence

import numpy as np

from silicon.bounded import BoundedRow
from silicon.page import table_of
from silicon.scores import errors
from sim.confidence.measured import METRICS

# The ends of a 90 % interval, as `sim.confidence` has it.
ENDS = (0.05, 0.95)


def board(rows: Iterable[BoundedRow]) -> str:
    """The table; the rows have factors at `ENDS`."""
    groups: dict[tuple[str, ...], list[BoundedRow]] = {}
    for one in rows:
        key = tuple(one.judged.row[name] for name in ("model", "system", "backend"))
        groups.setdefault(key, []).append(one)
    lines = []
    for key, group in sorted(groups.items(), key=lambda item: (item[0][0].lower(), item[0])):
        held_out = [one for one in group if one.judged.row["split"] == "held-out"]
        cells = [
            _errors(held_out, name) + " / " + _errors(group, name) for name in ("TTFT", "TPOT")
        ]
        widths = [_half_width(group, name) for name in ("ttft", "tpot")]
        lines.append([*key, f"{len(held_out)} / {len(group)}", *cells, *widths])
    header = ("model", "GPU", "engine", "servers", "TTFT", "TPOT", "± TTFT", "± TPOT")
    return table_of(header, lines)


def _errors(group: Sequence[BoundedRow], quantity: str) -> str:
    if not group:
        return "-"
    return f"{errors([one.judged for one in group], quantity).median:.0%}"


def _half_width(group: Sequence[BoundedRow], metric: str) -> str:
    """The median half of the intervals, in percent of the simulated mean."""
    factors = [one.factors[METRICS.index(metric)] for one in group if one.factors is not None]
    return f"{np.median(np.diff(factors, axis=1)) / 2:.0%}" if factors else "-"
