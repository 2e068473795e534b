"""What a search found: trials in order, the best of them, and how sure that is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.report.confidence import MeanInterval, mean_interval

# What a trial is shown with: label, summary name.
METRICS: Mapping[str, str] = {
    "SLO met %": "slo_attainment",
    "TTFT mean ms": "mean_ttft_ms",
    "TTFT p99 ms": "p99_ttft_ms",
    "TPOT mean ms": "mean_tpot_ms",
    "output tokens/s": "output_throughput",
}
# The front: the objective against these; whether more of them is better.
_FRONT_AXES = {"p99_ttft_ms": False, "output_throughput": True}
_COST_AXES = {"slo_attainment": True, "p99_ttft_ms": False}

OWN = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """A setting and what its runs gave.

    Attributes:
        trial: its number from 0; 0 is the scenario as it is.
        settings: values by key path.
        status: `done`, `failed`, or `contradiction` of values that do not go together.
        error: one line; None if it is done.
        objective: requests/s of goodput, or the cost, with each seed; empty unless done.
        sought: what was lowered; None unless done.
        meets: whether the SLO is attained as often as asked for; None unless done.
        runs: of each metric of `METRICS`, its values with each seed; empty unless done.
    """

    trial: int
    settings: Mapping[str, Any]
    status: str
    error: str | None
    objective: tuple[float, ...] = ()
    sought: float | None = None
    meets: bool | None = None
    runs: Mapping[str, tuple[float | None, ...]]

    def interval(self, metric: str) -> MeanInterval:
        """Of a metric, or of `objective`."""
        values = self.objective if metric == "objective" else self.runs.get(metric, ())
        return mean_interval([value for value in values if value is not None])

    def rank(self) -> tuple[object, ...]:
        """Less is better: settings that meet the SLO, then what was sought, then the earlier."""
        if self.meets:
            return (0, self.sought, self.trial)
        attainment = self.interval("slo_attainment").mean
        return (1, -(attainment or 0.0), self.trial)


@dataclass(frozen=True, slots=True)
class Difference:
    """The winner's metric minus another trial's, seed by seed.

    Attributes:
        metric: `objective` or `slo_attainment`.
        interval: of the differences.
        is_distinguishable: the interval excludes 0, or every seed gives the same difference and
            that is not 0; None with too few seeds to say.
    """

    metric: str
    interval: MeanInterval
    is_distinguishable: bool | None


@dataclass(frozen=True, slots=True)
class TuneResults:
    """All trials of a search.

    Attributes:
        name: of the scenario.
        objective: `goodput` or `cost`.
        unit: of the objective.
        method: `grid` or `search`.
        num_settings: how many settings there are; None: beyond counting.
        least_attainment: the SLO attainment asked for; None: any.
        keys: the tuned key paths.
        seeds: of every trial.
        trials: in the order they were chosen, the scenario's own setting first.
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

    def ranked(self) -> list[TrialResult]:
        """Those that are done, the best first."""
        done = [trial for trial in self.trials if trial.sought is not None]
        return sorted(done, key=TrialResult.rank)

    @property
    def winner(self) -> TrialResult | None:
        """The best trial that meets the SLO; None: there is none."""
        ranked = self.ranked()
        return ranked[0] if ranked and ranked[0].meets else None

    @property
    def runner_up(self) -> TrialResult | None:
        """The next best, if it meets the SLO too."""
        ranked = self.ranked()
        return ranked[1] if len(ranked) > 1 and ranked[1].meets else None

    def difference(self, other: TrialResult) -> Difference | None:
        """How far the winner is from another trial; None without a winner.

        Costs are what they are whatever the seed: at equal cost the SLO attainment is compared.
        """
        winner = self.winner
        if winner is None or other.sought is None or winner is other:
            return None
        metric, pairs = "objective", list(zip(winner.objective, other.objective, strict=True))
        if self.objective == "cost" and winner.objective == other.objective:
            metric = "slo_attainment"
            ours, theirs = winner.runs[metric], other.runs[metric]
            pairs = [(one or 0.0, two or 0.0) for one, two in zip(ours, theirs, strict=True)]
        interval = mean_interval([one - two for one, two in pairs])
        return Difference(metric, interval, self._is_distinguishable(metric, interval))

    def _is_distinguishable(self, metric: str, interval: MeanInterval) -> bool | None:
        if interval.mean is None:
            return None
        if self.objective == "cost" and metric == "objective":
            return interval.mean != 0
        if interval.half_width is None:
            return None
        return abs(interval.mean) > interval.half_width

    def front(self) -> list[TrialResult]:
        """Trials that no other one beats on all axes, the best objective first.

        The axes are, for goodput, that, p99 TTFT and output tokens/s; for cost, that, SLO
        attainment and p99 TTFT. Whether the SLO is met does not matter here.
        """
        done = self.ranked()
        places = {trial.trial: self._axes(trial) for trial in done}
        front = [
            trial
            for trial in done
            if not any(_beats(places[other.trial], places[trial.trial]) for other in done)
        ]
        return sorted(front, key=lambda trial: (places[trial.trial], trial.trial))

    def _axes(self, trial: TrialResult) -> tuple[float, ...]:
        """Less is better on each."""
        mean = trial.interval("objective").mean or 0.0
        places = [mean if self.objective == "cost" else -mean]
        for metric, more_is_better in self._front_axes().items():
            value = trial.interval(metric).mean
            sign = -1 if more_is_better else 1
            places.append(float("inf") if value is None else sign * value)
        return tuple(places)

    def _front_axes(self) -> Mapping[str, bool]:
        return _COST_AXES if self.objective == "cost" else _FRONT_AXES


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
