"""The results of a search: its trials, the best one, and by how much it is better."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sim.confidence.confidence import over_seeds
from sim.confidence.judged import ATTAINMENT, judged, judged_attainment
from sim.metrics.points import MeanInterval, mean_interval
from sim.metrics.registry import MetricName, metric
from sim.scenario.search_sections import JudgedBy, TuneSection
from sim.sweep.plan import Settings
from sim.sweep.store import PointOutcome
from sim.sweep.tune.plan import Score, TunePlan, limits_of

OBJECTIVE = "objective"
# The metrics that are shown for each trial, beside those of `constraints`.
TRIAL_METRICS = (
    ATTAINMENT, "mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "output_throughput",
)  # fmt: skip
# The metrics that, beside the objective, decide which trials are on the Pareto front.
FRONT_METRICS: Mapping[str, tuple[str, str]] = {
    "goodput": ("p99_ttft_ms", "output_throughput"),
    "cost": (ATTAINMENT, "p99_ttft_ms"),
}
# The number of the trial of the scenario as it is written.
OWN = 0


def trial_metrics(section: TuneSection) -> tuple[str, ...]:
    """The metrics that are shown for each trial; those with a limit in `constraints` come first."""
    return tuple(dict.fromkeys((*limits_of(section), *TRIAL_METRICS)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """A setting, which is a value for each searched key, and the results of its runs.

    Fields that only a trial with status `done` has are None or empty in the others.

    Attributes:
        trial: its number from 0; 0 is the scenario as it is written.
        settings: the value of each searched key.
        status: `done`; `failed`: a run failed; `contradiction`: the values do not go together.
        error: why the trial is not done; None: it is.
        objective: the goodput in requests/s, or the cost, with each seed.
        sought: the number that the search minimises.
        meets: whether the conditions of the `tune` section are met.
        shortfall: by how much they are missed, see `Score`; None also if there are none.
        runs: the simulated values of each shown metric, one for each seed.
        judged: the values by which the trial was judged, where they are not those simulated: of SLO
            attainment and of the metrics of `constraints`, one for each seed.
        tried: what the search chose of `settings`; empty for the scenario as it is written, if that
            is outside the ranges.
        outcomes: one for each seed; empty if nothing ran, or if the trial was read from a file.
        confidence: how far to believe its means (`sim.confidence`).
    """

    trial: int
    settings: Mapping[str, Any]
    status: str
    error: str | None
    objective: tuple[float, ...] = ()
    sought: float | None = None
    meets: bool | None = None
    shortfall: float | None = None
    runs: Mapping[str, tuple[float | None, ...]]
    judged: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    tried: Settings = field(default_factory=dict)
    outcomes: tuple[PointOutcome, ...] = ()
    confidence: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(
        plan: TunePlan,
        number: int,
        tried: Settings,
        outcomes: Sequence[PointOutcome],
        score: Score | None,
        reason: str | None,
    ) -> "TrialResult":
        """The result of a trial, with an outcome for each seed.

        If its values contradict each other, there is a `reason` in place of outcomes. There is a
        `score` if all outcomes are done.
        """
        messages = (one.message for one in outcomes if one.message is not None)
        without_score = TrialResult(
            trial=number,
            settings=dict(plan.own) | dict(tried),
            status="failed" if outcomes else "contradiction",
            error=reason or next(messages, None),
            runs={},
            tried=tried,
            outcomes=tuple(outcomes),
        )
        if score is None:
            return without_score
        runs = {
            name: tuple(MetricName.of(name).value(one.result or {}) for one in outcomes)
            for name in trial_metrics(plan.section)
        }
        return replace(
            without_score,
            status="done",
            error=None,
            objective=score.objective,
            sought=score.sought,
            meets=score.meets,
            shortfall=score.shortfall,
            runs=runs,
            judged=_judged(plan.section, runs, outcomes),
            confidence=over_seeds([(one.result or {}).get("confidence", {}) for one in outcomes]),
        )

    def interval(self, name: str) -> MeanInterval:
        """The mean of a metric, or of the `OBJECTIVE`, over the seeds."""
        values = self.objective if name == OBJECTIVE else self.runs.get(name, ())
        return mean_of_known(values)

    def judged_values(self, name: str) -> tuple[float | None, ...]:
        """The values of SLO attainment, or of a limited metric, by which the trial was judged."""
        return self.judged.get(name, self.runs.get(name, ()))

    def judged_interval(self, name: str) -> MeanInterval:
        """The mean of these over the seeds."""
        return mean_of_known(self.judged_values(name))

    def rank(self) -> tuple[object, ...]:
        """Sort key of a trial that is done, less is better.

        Trials that meet the conditions come first, by `sought`; then the others, by `shortfall`.
        """
        if self.meets:
            return (0, self.sought, self.trial)
        if self.shortfall is not None:
            return (1, self.shortfall, self.trial)
        return (1, -(self.judged_interval(ATTAINMENT).mean or 0.0), self.trial)


def mean_of_known(values: Iterable[float | None]) -> MeanInterval:
    """The mean of the values that are known, with its confidence interval."""
    return mean_interval([value for value in values if value is not None])


def _judged(
    section: TuneSection,
    runs: Mapping[str, tuple[float | None, ...]],
    outcomes: Sequence[PointOutcome],
) -> dict[str, tuple[float | None, ...]]:
    summaries, by = [one.result or {} for one in outcomes], section.judged_by
    names = (ATTAINMENT, *limits_of(section))
    found = {name: tuple(judged(one, name, by) for one in summaries) for name in names}
    has_share = any(judged_attainment(one, by) is not None for one in summaries)
    return {
        name: values
        for name, values in found.items()
        if values != runs[name] or (name == ATTAINMENT and has_share)
    }


@dataclass(frozen=True, slots=True)
class TrialDifference:
    """The winner's metric minus another trial's, seed by seed.

    Attributes:
        metric: `OBJECTIVE` or `ATTAINMENT`.
        interval: the mean of the differences, with its confidence interval.
        is_distinguishable: whether the interval excludes 0; of costs, which are the same with every
            seed, whether the difference is not 0. None: there are too few seeds to say.
    """

    metric: str
    interval: MeanInterval
    is_distinguishable: bool | None


@dataclass(frozen=True, slots=True)
class TuneResults:
    """All trials of a search.

    Attributes:
        objective: `goodput` or `cost`.
        method: `grid` or `search`.
        unit: that of the objective.
        num_settings: how many settings there are; None: infinitely many.
        least_attainment: the required SLO attainment; None: none is required.
        keys: paths of the searched keys.
        trials: in the order in which they were chosen, the scenario's own setting first.
        limits: the largest allowed value of each metric of `constraints`.
        metrics: those that are shown for each trial.
        judged_by: which latencies must keep the SLO, as the `tune` section says.
    """

    name: str
    objective: str
    unit: str
    method: str
    num_settings: int | None
    least_attainment: float | None
    keys: tuple[str, ...]
    seeds: tuple[int, ...]
    trials: tuple[TrialResult, ...]
    limits: Mapping[str, float] = field(default_factory=dict)
    metrics: tuple[str, ...] = TRIAL_METRICS
    judged_by: JudgedBy = "simulated"

    @staticmethod
    def of(plan: TunePlan, trials: Sequence[TrialResult]) -> "TuneResults":
        section = plan.section
        unit = metric("request_goodput").unit
        if section.objective == "cost":
            counted = "GPUs" if plan.plan.base.pools else "replicas"
            unit = counted if section.price_per_hour is None else "per hour"
        return TuneResults(
            name=plan.plan.base.scenario.name,
            objective=section.objective,
            unit=unit,
            method="grid" if plan.is_grid else "search",
            num_settings=plan.space.num_settings,
            least_attainment=section.min_slo_attainment,
            limits=limits_of(section),
            metrics=trial_metrics(section),
            judged_by=section.judged_by,
            keys=tuple(plan.space.axes),
            seeds=plan.seeds,
            trials=tuple(trials),
        )

    def ranked(self) -> list[TrialResult]:
        """The trials that are done, the best first."""
        done = [trial for trial in self.trials if trial.sought is not None]
        return sorted(done, key=TrialResult.rank)

    @property
    def winner(self) -> TrialResult | None:
        """The best trial, if it meets the conditions."""
        ranked = self.ranked()
        return ranked[0] if ranked and ranked[0].meets else None

    @property
    def runner_up(self) -> TrialResult | None:
        """The second best trial, if it meets the conditions, too."""
        ranked = self.ranked()
        return ranked[1] if len(ranked) > 1 and ranked[1].meets else None

    def difference(self, other: TrialResult) -> TrialDifference | None:
        """The winner compared with another trial.

        None if there is no winner, or if the other trial is the winner or is not done.

        A cost is the same with every seed, so trials of equal cost are compared by SLO attainment.
        """
        winner = self.winner
        if winner is None or other.sought is None or winner is other:
            return None
        name, pairs = OBJECTIVE, list(zip(winner.objective, other.objective, strict=True))
        if self.objective == "cost" and winner.objective == other.objective:
            name = ATTAINMENT
            ours, theirs = winner.judged_values(name), other.judged_values(name)
            pairs = [(one or 0.0, two or 0.0) for one, two in zip(ours, theirs, strict=True)]
        interval = mean_interval([one - two for one, two in pairs])
        return TrialDifference(name, interval, self._is_distinguishable(name, interval))

    def _is_distinguishable(self, name: str, interval: MeanInterval) -> bool | None:
        if interval.mean is None:
            return None
        if self.objective == "cost" and name == OBJECTIVE:
            return interval.mean != 0
        if interval.half_width is None:
            return None
        return abs(interval.mean) > interval.half_width

    def front(self) -> list[TrialResult]:
        """The Pareto front of the trials in the objective and the `FRONT_METRICS`.

        The best objective comes first. Whether the conditions are met does not matter here.
        """
        done = self.ranked()
        costs = {trial.trial: self._costs(trial) for trial in done}
        front = [
            trial
            for trial in done
            if not any(_beats(costs[other.trial], costs[trial.trial]) for other in done)
        ]
        return sorted(front, key=lambda trial: (costs[trial.trial], trial.trial))

    def _costs(self, trial: TrialResult) -> tuple[float, ...]:
        """The objective and the `FRONT_METRICS` with signs such that less is better."""
        mean = trial.interval(OBJECTIVE).mean or 0.0
        costs = [mean if self.objective == "cost" else -mean]
        for name in FRONT_METRICS[self.objective]:
            value = trial.interval(name).mean
            costs.append(float("inf") if value is None else -metric(name).better * value)
        return tuple(costs)


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether `one` is nowhere worse than `other` and somewhere better; less is better."""
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
