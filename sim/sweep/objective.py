"""Scores a setting: the number that a search minimises, and whether the SLO is met."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from sim.latency.config import parallelism
from sim.metrics.metric_name import MetricName
from sim.metrics.summary import Summary
from sim.scenario.schema import Scenario
from sim.scenario.search_sections import TuneSection

# Of two settings of equal cost, the one that meets the SLO more often is better. The weight is so
# small that attainment never outweighs one replica, of up to 4096.
_ATTAINMENT_WEIGHT = 1e-6
# The excess of a metric that a run does not have, because nothing finished.
_UNDEFINED = 1e6


@dataclass(frozen=True, slots=True)
class Score:
    """A setting judged over all its seeds.

    Attributes:
        objective: the goodput in requests/s, or the cost, with each seed.
        sought: the number that the search minimises.
        shortfall: the conditions are met at 0 and below. `min_slo_attainment` minus the mean SLO
            attainment; or, if that is more, by which share of its limit a metric of `constraints`
            exceeds it; None: the section sets no condition.
    """

    objective: tuple[float, ...]
    sought: float
    shortfall: float | None

    @property
    def meets(self) -> bool:
        return self.shortfall is None or self.shortfall <= 0


def score(
    section: TuneSection,
    scenario: Scenario,
    summaries: Sequence[Summary],
    pools: Iterable[Scenario] = (),
) -> Score:
    """Judge a setting.

    Args:
        section: the objective and the condition.
        scenario: the scenario with the setting.
        summaries: one for each seed, at least one.
        pools: the scenarios of its server pools; their GPUs are counted, not replicas.
    """
    # Attainment is None without an SLO or without requests, goodput also if no request finished.
    attainment = fmean(summary.get("slo_attainment") or 0.0 for summary in summaries)
    shortfalls = [_excess(name, limit, summaries) for name, limit in limits_of(section).items()]
    if section.min_slo_attainment is not None:
        shortfalls.append(section.min_slo_attainment - attainment)
    shortfall = max(shortfalls, default=None)
    if section.objective == "goodput":
        rates = tuple(summary.get("request_goodput") or 0.0 for summary in summaries)
        return Score(rates, -fmean(rates), shortfall)
    price = section.price_per_hour
    number = sum(map(_num_gpus, pools))
    sizes = [summary.get("mean_replicas") or scenario.replicas for summary in summaries]
    cost = (number or fmean(sizes)) * (1.0 if price is None else price)
    sought = cost * (1 + _ATTAINMENT_WEIGHT * (1 - attainment))
    return Score((cost,) * len(summaries), sought, shortfall)


def _num_gpus(scenario: Scenario) -> int:
    """The GPUs of all replicas."""
    spread = parallelism(scenario.latency)
    return scenario.replicas * spread.tp * spread.dp * spread.pp


def limits_of(section: TuneSection) -> Mapping[str, float]:
    """The limits of metrics, by name."""
    return section.constraints or {}


def _excess(name: str, limit: float, summaries: Sequence[Summary]) -> float:
    """By which share of its limit the metric's mean exceeds it; a run without it exceeds most."""
    values = [MetricName.of(name).value(summary) for summary in summaries]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return _UNDEFINED
    return min(fmean(known) / limit - 1, _UNDEFINED)
