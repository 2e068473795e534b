"""How far simulated means are from measured ones."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import kendalltau

from silicon.facts import Row
from silicon.simulate import RowOutcome
from sim.core.arrays import Float64

QUANTITIES = ("TTFT", "TPOT", "throughput")
# Fewer operating points of a configuration have no order worth speaking of.
_LEAST_POINTS = 3


class Means(NamedTuple):
    """Mean TTFT and TPOT of an operating point, in ms."""

    ttft_ms: float
    tpot_ms: float


class Judged(NamedTuple):
    """A row with what was simulated; `package` is the estimate of the package, if it has one."""

    row: Row
    measured: Means
    simulated: Means
    package: Means | None


class GroupErrors(NamedTuple):
    """Relative errors of a group, as shares; NaN of an empty group.

    Attributes:
        median, mean, p90: of absolute errors.
        bias: the median of signed errors.
    """

    median: float
    mean: float
    p90: float
    bias: float


def judged(rows: Iterable[Row], outcomes: Mapping[str, RowOutcome]) -> list[Judged]:
    """The rows that were simulated."""
    found = []
    for row in rows:
        outcome = outcomes.get(row.id)
        if outcome is None or outcome.ttft_ms is None or outcome.tpot_ms is None:
            continue
        texts = row["package_ttft_ms"], row["package_tpot_ms"]
        package = Means(*map(float, texts)) if all(texts) else None
        means = Means(outcome.ttft_ms, outcome.tpot_ms)
        found.append(Judged(row, Means(row.ttft_ms, row.tpot_ms), means, package))
    return found


def errors(points: Sequence[Judged], quantity: str, *, of_package: bool = False) -> GroupErrors:
    """The errors of the simulator, or of the package's own estimate, in a group."""
    ratios = [
        quantity_of(point.row, means, quantity) / quantity_of(point.row, point.measured, quantity)
        for point in points
        if (means := point.package if of_package else point.simulated) is not None
    ]
    if not ratios:
        return GroupErrors(*[float("nan")] * 4)
    signed: Float64 = np.array(ratios) - 1
    size = np.abs(signed)
    values = np.median(size), size.mean(), np.quantile(size, 0.9), np.median(signed)
    return GroupErrors(*map(float, values))


def tau(points: Sequence[Judged], quantity: str) -> float:
    """The mean over configurations of Kendall's tau between simulated and measured values.

    A configuration is a server with one workload; its points differ in concurrency.
    """
    found = []
    for group in grouped(points, _configuration).values():
        if len(group) < _LEAST_POINTS:
            continue
        measured = [quantity_of(point.row, point.measured, quantity) for point in group]
        simulated = [quantity_of(point.row, point.simulated, quantity) for point in group]
        found.append(kendalltau(measured, simulated).statistic)
    return float(np.nanmean(found)) if found else float("nan")


def grouped(points: Iterable[Judged], key: Callable[[Row], str]) -> dict[str, list[Judged]]:
    """The points by a property of their rows, in order of it."""
    groups: defaultdict[str, list[Judged]] = defaultdict(list)
    for point in points:
        groups[key(point.row)].append(point)
    return dict(sorted(groups.items()))


def _configuration(row: Row) -> str:
    names = (
        "backend", "version", "model", "system", "precision", "tp", "dp", "moe_tp", "moe_ep",
        "isl", "osl", "client", "prefill", "decode",
    )  # fmt: skip
    return " ".join(row[name] for name in names)


def quantity_of(row: Row, means: Means, quantity: str) -> float:
    """A quantity; the throughput of a closed loop follows from both means (Little's law)."""
    if quantity == "TTFT":
        return means.ttft_ms
    if quantity == "TPOT":
        return means.tpot_ms
    output_tokens, concurrency = float(row["osl"]), float(row["concurrency"])
    return concurrency / (means.ttft_ms + means.tpot_ms * (output_tokens - 1))
