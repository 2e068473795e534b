"""Paired differences between contestants and the reference, corrected for many comparisons.

Both get the same requests with the same seed, so a difference is taken seed by seed: what the
traffic of a seed does to both cancels out.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sim.contest.measures import Measure
from sim.metrics.points import chance_of_mean, mean_interval
from sim.metrics.registry import Better

# The chance that any comparison of a measure is marked although the two do not differ.
LEVEL = 0.05
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Difference:
    """How a contestant differs from the reference.

    Attributes:
        mean: over the seeds; of ratios, in percent, the geometric mean. None: not defined.
        low, high: ends of the 95 % interval of the mean, for this comparison alone; None: there is
            none.
        chance: that a difference as large comes from chance alone (Student's t, two-sided); None:
            not known.
        corrected: the chance for all comparisons of the measure together (Holm); None: not known.
    """

    mean: float | None
    low: float | None = None
    high: float | None = None
    chance: float | None = None
    corrected: float | None = None

    def verdict(self, better: Better) -> str:
        """`better`, `worse`, `same` in every run, or `none shown`."""
        if self.mean == 0 and self.chance == 1:
            return "same"
        if self.mean is None or self.corrected is None or self.corrected > LEVEL:
            return "none shown"
        return "better" if self.mean * better > 0 else "worse"


def paired(
    measure: Measure, values: Sequence[float | None], reference: Sequence[float | None]
) -> list[float] | None:
    """What a contestant differs by with each seed; of ratios, logarithms. None: not defined.

    One undefined value makes all of them undefined: what is left might be the easy seeds.
    """
    if measure.compared == "ratio":
        logs = [_log(value) for value in (*values, *reference)]
        values, reference = logs[: len(values)], logs[len(values) :]
    pairs = list(zip(values, reference, strict=True))
    if not pairs or any(value is None or other is None for value, other in pairs):
        return None
    return [float(value or 0) - float(other or 0) for value, other in pairs]


def _log(value: float | None) -> float | None:
    return math.log(value) if value is not None and value > 0 else None


def difference(
    measure: Measure, differences: Sequence[float] | None, *, draws: bool = True
) -> Difference:
    """The mean of paired differences, with its interval, before the correction.

    `draws`: whether the seeds draw anything. Where they do not, all runs are one.
    """
    if differences is None:
        return Difference(None)
    found = mean_interval(differences)
    low, high = found.ends
    shown = [_shown(measure, value) for value in (found.mean or 0.0, low, high)]
    if not any(differences):
        return Difference(0.0, 0.0, 0.0, 1.0)
    if found.half_width is None or not draws:
        return Difference(shown[0])
    return Difference(shown[0], shown[1], shown[2], chance_of_mean(differences))


def _shown(measure: Measure, value: float) -> float:
    """A difference in the measure's unit; of a ratio, in percent."""
    return 100 * math.expm1(value) if measure.compared == "ratio" else value


def corrected(found: Mapping[K, Difference]) -> dict[K, Difference]:
    """The differences with Holm's correction over all of them.

    The smallest chance is multiplied by the number of comparisons, the next by one less, and so
    on; none becomes smaller than one before it. However many differences there are in truth, the
    chance that one is shown where there is none is then at most `LEVEL`.
    """
    known = sorted(
        (one.chance, place) for place, one in enumerate(found.values()) if one.chance is not None
    )
    largest, after = 0.0, {}
    for rank, (chance, place) in enumerate(known):
        largest = max(largest, min(1.0, chance * (len(known) - rank)))
        after[place] = largest
    return {
        key: replace(one, corrected=after.get(place))
        for place, (key, one) in enumerate(found.items())
    }
