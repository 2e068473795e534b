"""Whether simulations put settings in the same order as real runs.

A stage is one of the simulations of a real run (`calibrate.stages`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np

from calibrate.errors import RealRuns, Values

# The metrics by which people choose settings.
RANKED = ("mean_ttft_ms", "p99_ttft_ms", "output_throughput", "cache_hit_rate_pct")

_MOST_PERMUTED = 7
_NUM_ORDERS = 5_000


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well one stage of simulation orders settings by one metric.

    Attributes:
        clear_pairs: pairs of settings that differ in reality by more than the larger of their
            repeats' spreads; all pairs that differ, where there are no repeats.
        tau: Kendall's tau over the clear pairs: the share that the simulation puts in the real
            order, less the share that it reverses; None: no pair is clear.
        p: the share of all orders of the settings that reach this tau; small if chance would hardly
            do so.
        discordant: clear pairs that the simulation puts in the opposite order.
    """

    clear_pairs: int
    tau: float | None
    p: float | None
    discordant: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Agreement about the settings that served one load.

    Attributes:
        labels: the settings.
        agreements: by stage and metric; metrics that a setting leaves undefined are left out.
    """

    labels: tuple[str, ...]
    agreements: Mapping[str, Mapping[str, Agreement]]


def rank(
    labels: Sequence[str], real: Sequence[RealRuns], simulated: Mapping[str, Sequence[Values]]
) -> Ranking:
    """Compare the orders in which reality and each stage put the settings.

    Args:
        labels: one for each setting.
        real: the real runs of each setting.
        simulated: by stage, the simulations of each setting.
    """
    agreements = {
        stage: {
            metric: agreement
            for metric in RANKED
            if (agreement := _agreement(metric, labels, real, values)) is not None
        }
        for stage, values in simulated.items()
    }
    return Ranking(tuple(labels), agreements)


def _agreement(
    metric: str, labels: Sequence[str], real: Sequence[RealRuns], simulated: Sequence[Values]
) -> Agreement | None:
    a = [runs.mean[metric] for runs in real]
    b = [values[metric] for values in simulated]
    known_a, known_b = [x for x in a if x is not None], [x for x in b if x is not None]
    if len(known_a) < len(a) or len(known_b) < len(b):
        return None
    clear = clear_pairs(known_a, [runs.spread[metric] or 0.0 for runs in real])
    return Agreement(
        clear_pairs=len(clear),
        tau=tau_of(clear, known_a, known_b),
        p=chance_of(clear, known_a, known_b),
        discordant=tuple((labels[i], labels[j]) for i, j in discordant(clear, known_a, known_b)),
    )


def tau_of(
    pairs: Sequence[tuple[int, int]], a: Sequence[float], b: Sequence[float]
) -> float | None:
    """Kendall's tau over these pairs: 1 if `b` orders all as `a` does, -1 if it reverses all.

    A pair that is tied in `b` counts for neither order.

    Returns:
        None if there is no pair.
    """
    if not pairs:
        return None
    reversed_pairs = discordant(pairs, a, b)
    ordered = [(i, j) for i, j in pairs if (a[i] - a[j]) * (b[i] - b[j]) > 0]
    return round((len(ordered) - len(reversed_pairs)) / len(pairs), 4)


def chance_of(
    pairs: Sequence[tuple[int, int]], a: Sequence[float], b: Sequence[float]
) -> float | None:
    """How many of the orders of `b` have at least its tau, as a share.

    Up to 7 values are put into all orders; more values into their own and 5,000 random ones, drawn
    with a fixed seed.

    Returns:
        None if there is no pair.
    """
    found = tau_of(pairs, a, b)
    if found is None:
        return None
    if len(b) <= _MOST_PERMUTED:
        orders = [list(order) for order in permutations(b)]
    else:
        rng = np.random.default_rng(0)
        orders = [list(b), *(rng.permutation(b).tolist() for _ in range(_NUM_ORDERS))]
    reached = sum((tau_of(pairs, a, order) or 0.0) >= found for order in orders)
    return round(reached / len(orders), 4)


def clear_pairs(values: Sequence[float], spread: Sequence[float]) -> list[tuple[int, int]]:
    """Pairs of items that are farther apart than the larger of their spreads."""
    return [
        (i, j)
        for i, j in combinations(range(len(values)), 2)
        if abs(values[i] - values[j]) > max(spread[i], spread[j])
    ]


def discordant(
    pairs: Sequence[tuple[int, int]], a: Sequence[float], b: Sequence[float]
) -> list[tuple[int, int]]:
    """The pairs that `a` and `b` put in opposite orders."""
    return [(i, j) for i, j in pairs if (a[i] - a[j]) * (b[i] - b[j]) < 0]
