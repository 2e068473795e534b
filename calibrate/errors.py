"""Errors of simulated runs, compared with the differences between repeats of a real run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import t as student_t

from sim.core.arrays import Float64
from sim.metrics.latencies import request_latencies
from sim.metrics.registry import E2E_LATENCY, ITL, TPOT, TTFT, metric
from sim.metrics.summary import summarise
from sim.runlog import RunLog

Values = Mapping[str, float | None]

_STATISTICS = {"mean": "mean", "median": "p50", "p90": "p90", "p99": "p99"}
# Names of metrics in the summary, and their names in tables.
METRICS: Mapping[str, str] = {
    **{
        f"{statistic}_{latency.name}_ms": f"{latency.heading} {short} ms"
        for latency in (TTFT, TPOT, ITL, E2E_LATENCY)
        for statistic, short in _STATISTICS.items()
    },
    **{
        name: metric(name).table_heading_with_unit
        for name in ("output_throughput", "cache_hit_rate_pct")
    },
}
# Latencies that are known for each single request.
OF_A_REQUEST: Mapping[str, str] = {
    latency.name: f"{latency.heading} of a request" for latency in (TTFT, TPOT, E2E_LATENCY)
}
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class RealRuns:
    """Repeats of one scenario; a metric is None if it is undefined in one of them.

    Attributes:
        mean: of each metric over the repeats.
        spread: largest minus smallest value over the repeats; None: there is only one repeat.
        margin: half the width of the 95 % interval of the mean, by Student's t; None: there is only
            one repeat.
        request_spread_pct: absolute difference of a request's latencies in two repeats, in percent;
            the mean over requests and pairs of repeats. None: there is only one repeat.
    """

    mean: Values
    spread: Values
    margin: Values
    request_spread_pct: Values

    def spread_pct(self, metric: str) -> float | None:
        """The spread in percent of the mean."""
        return _percent(self.spread[metric], self.mean[metric])

    def margin_pct(self, metric: str) -> float | None:
        """The margin in percent of the mean."""
        return _percent(self.margin[metric], self.mean[metric])


@dataclass(frozen=True, slots=True)
class StageErrors:
    """Errors of simulated runs of one scenario.

    Attributes:
        mean: of each metric over the simulated runs.
        error_pct: error of that mean against the mean of the real runs, in percent; positive: too
            large.
        ratio: simulated / real.
        within: the error is within the margin of the real mean; None: either is undefined.
        request_error_pct: mean over requests of the absolute error, in percent.
    """

    mean: Values
    error_pct: Values
    ratio: Values
    within: Mapping[str, bool | None]
    request_error_pct: Values


def real_runs(logs: Sequence[RunLog]) -> RealRuns:
    """Means and spreads over the repeats of one scenario."""
    columns = _metric_columns(logs)
    pairs = [_request_errors(a, b) for a, b in combinations(logs, 2)]
    return RealRuns(
        mean={name: _mean(values) for name, values in columns.items()},
        spread={name: _spread(values) for name, values in columns.items()},
        margin={name: _margin(values) for name, values in columns.items()},
        request_spread_pct={name: _mean([pair[name] for pair in pairs]) for name in OF_A_REQUEST},
    )


def stage_errors(
    real: RealRuns, real_logs: Sequence[RunLog], simulated: Sequence[RunLog]
) -> StageErrors:
    """Errors of the simulations of one stage of a validation.

    Args:
        real: what `real_runs` returns for `real_logs`.
        real_logs: repeats of one scenario.
        simulated: a simulation of each of them.
    """
    mean = {name: _mean(values) for name, values in _metric_columns(simulated).items()}
    error = {name: _difference(mean[name], real.mean[name]) for name in METRICS}
    requests = [_request_errors(a, b) for a, b in zip(real_logs, simulated, strict=True)]
    return StageErrors(
        mean=mean,
        error_pct={name: _percent(error[name], real.mean[name]) for name in METRICS},
        ratio={name: _ratio(mean[name], real.mean[name]) for name in METRICS},
        within={name: _within(error[name], real.margin[name]) for name in METRICS},
        request_error_pct={name: _mean([one[name] for one in requests]) for name in OF_A_REQUEST},
    )


def _metric_columns(logs: Sequence[RunLog]) -> dict[str, list[float | None]]:
    summaries = [summarise(log) for log in logs]
    return {name: [summary[name] for summary in summaries] for name in METRICS}


def _request_errors(real: RunLog, simulated: RunLog) -> dict[str, float | None]:
    """Mean absolute error in percent, over the requests that have the latency in both runs.

    Warm-up requests do not count, nor do those that the user skips.
    """
    real, simulated = real.measured(), simulated.measured()
    row_of = {rid: row for row, rid in enumerate(simulated.requests.rid)}
    rows = [(i, row_of[rid]) for i, rid in enumerate(real.requests.rid) if rid in row_of]
    in_real, in_simulated = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    measured, predicted = request_latencies(real.requests), request_latencies(simulated.requests)
    return {
        name: _mean_error_pct(
            getattr(measured, f"{name}_ms")[in_real], getattr(predicted, f"{name}_ms")[in_simulated]
        )
        for name in OF_A_REQUEST
    }


def _mean_error_pct(real: Float64, simulated: Float64) -> float | None:
    known = ~np.isnan(real) & ~np.isnan(simulated) & (real > 0)
    if not known.any():
        return None
    return _short(100 * float(np.mean(np.abs(simulated[known] / real[known] - 1))))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def _spread(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) - min(known) if len(known) == len(values) > 1 else None


def _margin(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    num = len(known)
    if not num == len(values) > 1:
        return None
    return float(student_t.ppf(0.975, num - 1) * np.std(known, ddof=1) / num**0.5)


def _difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _within(error: float | None, margin: float | None) -> bool | None:
    return None if error is None or margin is None else abs(error) <= margin


def _ratio(a: float | None, b: float | None) -> float | None:
    return _short(a / b) if a is not None and b else None


def _percent(part: float | None, whole: float | None) -> float | None:
    return _short(100 * part / whole) if part is not None and whole else None


def _short(value: float) -> float:
    return round(value, _DIGITS)
