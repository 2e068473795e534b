"""Turns a scenario's `tune` section into a plan: a space of settings, and how they are scored."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from sim.confidence.judged import ATTAINMENT, GOODPUT, judged
from sim.core.errors import InputError, unknown_value
from sim.latency.config import parallelism
from sim.metrics.registry import GROUP_METRICS, TENANTS, Better, MetricName, metric_names
from sim.metrics.summary import Summary
from sim.scenario.explain import ContradictionError
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import BESIDE_THE_RUN, Scenario
from sim.scenario.search_sections import TuneSection
from sim.sweep.plan import SEED, Plan, Settings, canonical, seeds_of
from sim.sweep.tune.space import Axis, Countable, GpuLimit, Space, axis_of, num_gpus

# Keys that a search cannot change: settings are judged by some of them.
_NOT_TUNED = (*BESIDE_THE_RUN, SEED, "slo", "name")
_MAX_COUNT = 2**53


@dataclass(frozen=True, slots=True)
class TunePlan:
    """What a search will do.

    Points are added to the plan when settings are chosen. `own` are the scenario's own settings;
    every setting is run with each of the seeds.
    """

    section: TuneSection
    plan: Plan
    space: Space
    own: Settings
    seeds: tuple[int, ...]

    @property
    def own_is_inside(self) -> bool:
        return self.space.places(self.own) is not None

    @property
    def is_grid(self) -> bool:
        """Whether there are enough trials to try all settings; then all of them are tried."""
        num = self.space.num_settings
        return num is not None and num + (not self.own_is_inside) <= self.section.num_trials

    @property
    def num_trials(self) -> int:
        """The number of trials there will be."""
        if self.is_grid and self.space.num_settings is not None:
            return self.space.num_settings + (not self.own_is_inside)
        return self.section.num_trials


def plan_tune(loaded: LoadedScenario) -> TunePlan:
    """Check the scenario's `tune` section.

    Combinations of values are checked when they are tried: some may contradict each other.

    Raises:
        InputError: there is no such section or no SLO, a key path does not exist or cannot be
            tuned, or the end of a range is not a valid value of its key. The message names the
            file, the line and the key path.
    """
    section = loaded.scenario.tune
    if section is None:
        raise loaded.error((), "has no tune section")
    needs_slo = section.objective == "goodput" or section.min_slo_attainment is not None
    if needs_slo and not loaded.scenario.slo.has_limit:
        raise loaded.error(
            ("tune", "objective"), f"{section.objective} needs an slo section with a limit"
        )
    _check_constraints(loaded, section)
    seeds = seeds_of(loaded, "tune", section.seeds)
    axes = {key: axis_of(described) for key, described in section.ranges.items()}
    plan = Plan(loaded, (*axes, SEED), (), "tune")
    _check_keys(loaded, axes)
    _check_values(plan, axes)
    own = {key: value for key, value in plan.values({}).items() if key != SEED}
    return TunePlan(section, plan, _space(plan, section, axes), own, seeds)


def _space(plan: Plan, section: TuneSection, axes: Mapping[str, Axis]) -> Space:
    if section.max_gpus is None:
        return Space(axes)
    place = ("tune", "max_gpus")
    own = num_gpus(plan.base)
    if own > section.max_gpus:
        raise plan.base.error(place, f"the scenario itself has {own} GPUs")
    limit = GpuLimit(plan, axes, section.max_gpus, fills=section.objective == "goodput")
    space = Space(axes, limit.fits, limit.deciding)
    if space.num_settings == 0:
        raise plan.base.error(place, "every setting of the ranges has more GPUs")
    return space


def _check_constraints(loaded: LoadedScenario, section: TuneSection) -> None:
    for name in limits_of(section):
        named = MetricName.of(name)
        pools = loaded.pools
        if name not in metric_names(pools=pools) and not _is_of_tenant(named):
            reason = unknown_value("metric", name, metric_names(pools=pools))
        elif named.better is not Better.LOWER:
            reason = "is not better when it is lower: only such a metric can have a limit"
        else:
            continue
        raise loaded.error(("tune", "constraints", name), reason)


def _is_of_tenant(named: MetricName) -> bool:
    return named.group.startswith(f"{TENANTS}.") and named.base in GROUP_METRICS


def _check_keys(loaded: LoadedScenario, axes: Mapping[str, Axis]) -> None:
    for key, axis in axes.items():
        place = ("tune", "ranges", key)
        if key.partition(".")[0] in _NOT_TUNED:
            hint = "give the seeds as tune.seeds" if key == SEED else "cannot be tuned"
            raise loaded.error(place, hint)
        around = [other for other in axes if other != key and f"{key}.".startswith(f"{other}.")]
        if around:
            raise loaded.error(place, f"is a part of {around[0]}: only one of them can be tuned")
        if isinstance(axis, Countable):
            _check_countable(loaded, key, axis)


def _check_countable(loaded: LoadedScenario, key: str, axis: Countable) -> None:
    place = ("tune", "ranges", key)
    if axis.num_values > _MAX_COUNT:
        raise loaded.error(place, "has more values than can be counted: give it a step")
    texts = [canonical(value) for value in axis.values]
    for number, text in enumerate(texts):
        if text in texts[:number]:
            raise loaded.error((*place, "values", number), f"{text} is given twice")


def _check_values(plan: Plan, axes: Mapping[str, Axis]) -> None:
    """Check each value by itself, and if it is refused, with the first values of the other keys.

    A key may need another one: `scheduler.fairness.t_ms` needs its `kind`.
    """
    first = {key: axis.edges()[0] for key, axis in axes.items()}
    for key, axis in axes.items():
        for value in axis.edges():
            try:
                _check(plan, {key: value})
            except InputError as alone:
                try:
                    _check(plan, first | {key: value})
                except InputError:
                    raise alone from None


def _check(plan: Plan, settings: Settings) -> None:
    try:
        plan.vary(settings)
    except ContradictionError:
        # It may be valid with other values of other keys.
        return


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

    There is a summary for each seed. Of server `pools`, GPUs are counted, not replicas. SLO
    attainment, goodput and limits are those with the latencies that `judged_by` names.
    """
    # Attainment is None without an SLO or without requests, goodput also if no request finished.
    attainment = fmean(_judged(section, summaries, ATTAINMENT))
    shortfalls = [_excess(section, name, summaries) for name in limits_of(section)]
    if section.min_slo_attainment is not None:
        shortfalls.append(section.min_slo_attainment - attainment)
    shortfall = max(shortfalls, default=None)
    if section.objective == "goodput":
        rates = tuple(_judged(section, summaries, GOODPUT))
        return Score(rates, -fmean(rates), shortfall)
    price = section.price_per_hour
    number = sum(pool.replicas * parallelism(pool.latency).num_gpus for pool in pools)
    sizes = [summary.get("mean_replicas") or scenario.replicas for summary in summaries]
    cost = (number or fmean(sizes)) * (1.0 if price is None else price)
    sought = cost * (1 + _ATTAINMENT_WEIGHT * (1 - attainment))
    return Score((cost,) * len(summaries), sought, shortfall)


def limits_of(section: TuneSection) -> Mapping[str, float]:
    """The limits of metrics, by name."""
    return section.constraints or {}


def _judged(section: TuneSection, summaries: Sequence[Summary], name: str) -> list[float]:
    return [judged(summary, name, section.judged_by) or 0.0 for summary in summaries]


def _excess(section: TuneSection, name: str, summaries: Sequence[Summary]) -> float:
    """By which share of its limit the metric's mean exceeds it; a run without it exceeds most."""
    values = [judged(summary, name, section.judged_by) for summary in summaries]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return _UNDEFINED
    return min(fmean(known) / limits_of(section)[name] - 1, _UNDEFINED)
