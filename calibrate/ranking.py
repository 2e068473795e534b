"""Whether simulations put settings in the same order as real runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from scipy.stats import kendalltau

from calibrate.errors import RealRuns, Values

# The metrics by which people choose settings.
RANKED = ("mean_ttft_ms", "p99_ttft_ms", "output_throughput", "cache_hit_rate_pct")


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well one stage of simulation orders settings by one metric.

    Attributes:
        tau: Kendall's tau-b of simulated against real; None where it is undefined.
        clear_pairs: pairs of settings that differ in reality by more than the larger of their
            repeats' spreads; all pairs that differ, where there are no repeats.
        discordant: clear pairs that the simulation puts in the opposite order.
    """

    tau: float | None
    clear_pairs: int
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
        tau=kendall_tau(known_a, known_b),
        clear_pairs=len(clear),
        discordant=tuple((labels[i], labels[j]) for i, j in discordant(clear, known_a, known_b)),
    )


def kendall_tau(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Kendall's tau-b of two rankings of the same items: 1 the same order, -1 the reverse.

    Pairs tied in either count for neither order.

    Returns:
        None if all items of one ranking are tied.
    """
    if len(set(a)) < 2 or len(set(b)) < 2:
        return None
    return round(float(kendalltau(a, b).statistic), 4)


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
