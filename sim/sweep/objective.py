"""Scores a setting: the number that a search minimises, and whether the SLO is met."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from sim.metrics.summary import Summary
from sim.scenario.schema import Scenario
from sim.scenario.tune_section import TuneSection

# Of two settings of equal cost, the one that meets the SLO more often is better. The weight is so
# small that attainment never outweighs one replica, of up to 4096.
_ATTAINMENT_WEIGHT = 1e-6


@dataclass(frozen=True, slots=True)
class Score:
    """A setting judged over all its seeds.

    Attributes:
        objective: the goodput in requests/s, or the cost, with each seed.
        sought: the number that the search minimises.
        shortfall: `min_slo_attainment` minus the mean SLO attainment: the condition is met at 0 and
            below; None: the section sets no condition.
    """

    objective: tuple[float, ...]
    sought: float
    shortfall: float | None

    @property
    def meets(self) -> bool:
        return self.shortfall is None or self.shortfall <= 0


def score(section: TuneSection, scenario: Scenario, summaries: Sequence[Summary]) -> Score:
    """Judge a setting.

    Args:
        section: the objective and the condition.
        scenario: the scenario with the setting.
        summaries: one for each seed, at least one.
    """
    # Attainment is None without an SLO or without requests, goodput also if no request finished.
    attainment = fmean(summary.get("slo_attainment") or 0.0 for summary in summaries)
    least = section.min_slo_attainment
    shortfall = None if least is None else least - attainment
    if section.objective == "goodput":
        rates = tuple(summary.get("request_goodput") or 0.0 for summary in summaries)
        return Score(rates, -fmean(rates), shortfall)
    price = section.price_per_hour
    cost = scenario.replicas * (1.0 if price is None else price)
    sought = cost * (1 + _ATTAINMENT_WEIGHT * (1 - attainment))
    return Score((cost,) * len(summaries), sought, shortfall)
