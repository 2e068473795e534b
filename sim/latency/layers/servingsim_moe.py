"""Mixtures of experts in LLMServingSim's tables."""

from sim.core.errors import InputError
from sim.latency.curves import Curve, bracket
from sim.tables.csv_table import CsvTable, medians

# The curve has a knot at every number of tokens below this, then only at the table's.
_DENSE_TOKENS = 4096


def experts_curve(table: CsvTable, num_devices: int = 1) -> Curve:
    """Microseconds of one layer's experts, over new tokens, on the devices they are spread over.

    The table has times by tokens and by the number of experts that at least one token uses. If each
    token chooses k of E experts evenly and independently, the expected number of these is
    E x (1 - (1 - k / E)^tokens). E is the largest number of experts in the table, k the smallest.

    Each of n devices has E / n experts, of which as large a share is used. Its experts are chosen
    as often as all experts are by tokens / n tokens.

    Rows with experts spread over several devices (`ep` above 1) are left out.

    Raises:
        InputError: a column is missing or malformed, or there is no row with `ep` 1.
    """
    tokens, activated = table.numbers("tokens", low=1), table.numbers("activated_experts", low=1)
    times = table.numbers("time_us")
    degrees = table.numbers("ep", low=1) if "ep" in table else [1.0] * len(times)
    by_tokens: dict[float, dict[float, float]] = {}
    points = zip(zip(degrees, tokens, activated, strict=True), times, strict=True)
    for (degree, num_tokens, num_experts), us in medians(points).items():
        if degree == 1:
            by_tokens.setdefault(num_tokens, {})[num_experts] = us
    if not by_tokens:
        raise InputError(f"{table.path}: ep: has no row of 1")
    grid = {num_tokens: Curve.through(times) for num_tokens, times in by_tokens.items()}
    return _over_tokens(grid, num_devices)


def _over_tokens(grid: dict[float, Curve], num_devices: int) -> Curve:
    knots = sorted(grid)
    num_experts = max(curve.knots[-1] for curve in grid.values())
    per_token = min(curve.knots[0] for curve in grid.values())
    # Between the table's knots, the number of experts in use does not grow linearly.
    last = min(int(num_devices * knots[-1]), _DENSE_TOKENS)
    sizes = sorted({*(num_devices * knot for knot in knots), *range(int(knots[0]), last)})
    values = []
    for num_tokens in sizes:
        activated = num_experts * (1 - (1 - per_token / num_experts) ** num_tokens) / num_devices
        low, high, share = bracket(knots, max(num_tokens / num_devices, knots[0]))
        us = grid[knots[low]].at(activated)
        values.append(us + share * (grid[knots[high]].at(activated) - us))
    return Curve(sizes, values)
