"""Host time a step, estimated from time stamps alone: whose simulation comes nearest to them?

What host time does to a request is in how long it decoded, a sum of steps' times, and in how long
it took from its arrival on, the steps it waited for included. Both are compared as logarithms of
simulated over measured, so that every request counts alike. TTFT alone is not taken: a short one
says more of the moment a request came than of host time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrate.measured.compare import Comparison, compare
from calibrate.measured.pairs import Pairs, Selection, Times, join
from calibrate.measured.robust import jackknife, minimise, objective
from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.latency.host_times import HostTimes
from sim.runlog import RunLog
from sim.runlog.measured import MeasuredRun

Float64 = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Simulates with these host times.
Simulate = Callable[[HostTimes], RunLog]
Say = Callable[[str], None]

# Requests next to each other share steps, so they are left out together.
_NUM_GROUPS = 10
_FEWEST_REQUESTS = 2 * _NUM_GROUPS
_SECOND_DIGITS, _PER_REQUEST_DIGITS = 9, 12
_MOST_S = 60.0
_ALIKE = 0.95
# Beyond this two columns of derivatives are one and the same.
_SINGULAR = 1e6


@dataclass(frozen=True, slots=True)
class HostFit:
    """Estimated host times and how well they explain what was measured.

    Attributes:
        times: the estimate.
        std_errors: of it; how far it moves if other requests had been measured.
        correlation: of the errors of the two times; None: there is but one.
        before, after: the simulation with the scenario's own times and with the estimate.
        objective_before, objective_after: robust root mean square of the log ratios.
        num_requests: that were fitted to.
        num_simulations: it took.
        remarks: what a reader should know beside the numbers, a line each.
    """

    times: HostTimes
    std_errors: HostTimes
    correlation: float | None
    before: Comparison
    after: Comparison
    objective_before: float
    objective_after: float
    num_requests: int
    num_simulations: int
    remarks: tuple[str, ...]


def fit_host_times(
    measured: MeasuredRun,
    simulate: Simulate,
    *,
    start: HostTimes,
    selection: Selection,
    per_request: bool,
    say: Say,
) -> HostFit:
    """Estimate host times.

    Args:
        measured: what happened.
        simulate: a trial.
        start: what to begin with; `per_request_s` stays as it is unless it is to be estimated.
        selection: which requests are fitted to.
        per_request: estimate a time of every request in a step too.
        say: told of each trial, in a line.

    Raises:
        InputError: too few requests, or their steps do not tell the two times apart.
    """
    trials = _Trials(measured, simulate, selection, start, per_request=per_request, say=say)
    first = trials.first
    solution = minimise(trials.residuals, trials.unknowns_of(start))
    found = trials.times_of(solution.unknowns)
    if per_request and np.linalg.cond(solution.jacobian) > _SINGULAR:
        raise InputError(
            "--per-request: all steps have equally many requests, which does not tell a constant"
            " from a time per request"
        )
    covariance = jackknife(solution, trials.groups())
    errors = np.sqrt(np.diag(covariance))
    correlation = None
    if per_request:
        correlation = float(covariance[0, 1] / (errors[0] * errors[1])) if errors.all() else 0.0
    after = trials.compared[found]
    return HostFit(
        times=found,
        std_errors=HostTimes(
            float(errors[0] * trials.units_s[0]),
            float(errors[1] * trials.units_s[1]) if per_request else 0.0,
        ),
        correlation=correlation,
        before=first,
        after=after,
        objective_before=objective(trials.first_residuals),
        objective_after=objective(solution.residuals),
        num_requests=len(first.pairs),
        num_simulations=trials.num_simulations,
        remarks=tuple(_remarks(found, correlation, per_request=per_request)),
    )


class _Trials:
    """Simulations with several host times, each once, and what they leave unexplained.

    Unknowns are counted in shares of a mean step of the first simulation, in which requests take
    part with their mean number.
    """

    def __init__(
        self,
        measured: MeasuredRun,
        simulate: Simulate,
        selection: Selection,
        start: HostTimes,
        *,
        per_request: bool,
        say: Say,
    ) -> None:
        self._measured = measured
        self._simulate = simulate
        self._selection = selection
        self._per_request = per_request
        self._kept_s = start.per_request_s
        self._say = say
        self.num_simulations = 0
        self.compared: dict[HostTimes, Comparison] = {}
        log, self.first = self._run(start)
        self.units_s = _mean_step(log)
        pairs = self.first.pairs
        if len(pairs) < _FEWEST_REQUESTS:
            raise InputError(
                f"{len(pairs)} requests are too few to estimate host times from:"
                f" {_FEWEST_REQUESTS} must have finished in both runs"
            )
        ours, theirs = pairs.measured, pairs.simulated
        self._decoded = _above_zero(ours.decode_ms(), theirs.decode_ms())
        self._took = _above_zero(_lasted(ours), _lasted(theirs))
        self.first_residuals = self._residuals(pairs)
        self._tell(start, self.first_residuals)

    def unknowns_of(self, times: HostTimes) -> Float64:
        both = np.array([times.host_s, times.per_request_s]) / self.units_s
        return both[: 1 + self._per_request]

    def times_of(self, unknowns: Float64) -> HostTimes:
        seconds = [min(float(share * unit), _MOST_S)
                   for share, unit in zip(unknowns, self.units_s, strict=False)]  # fmt: skip
        per_request_s = round(seconds[1], _PER_REQUEST_DIGITS) if self._per_request else None
        return HostTimes(
            round(seconds[0], _SECOND_DIGITS),
            self._kept_s if per_request_s is None else per_request_s,
        )

    def residuals(self, unknowns: Float64) -> Float64:
        """One trial: logarithms of simulated over measured times."""
        times = self.times_of(unknowns)
        if times in self.compared:
            return self._residuals(self.compared[times].pairs)
        _, comparison = self._run(times)
        if comparison.pairs.rid != self.first.pairs.rid:
            raise InputError(
                f"which requests finish in the simulation depends on host times: with"
                f" {times.host_s} s a step {len(comparison.pairs)} do, at first"
                f" {len(self.first.pairs)} did"
            )
        residuals = self._residuals(comparison.pairs)
        self._tell(times, residuals)
        return residuals

    def groups(self) -> NDArray[np.int64]:
        """The group of each residual: tenths of the requests, by arrival."""
        num = len(self.first.pairs)
        group = np.arange(num, dtype=np.int64) * _NUM_GROUPS // num
        return np.concatenate([group[self._decoded], group[self._took]])

    def _run(self, times: HostTimes) -> tuple[RunLog, Comparison]:
        log = self._simulate(times)
        self.num_simulations += 1
        self.compared[times] = compare(join(self._measured, log.requests, self._selection))
        return log, self.compared[times]

    def _residuals(self, pairs: Pairs) -> Float64:
        ours, theirs = pairs.measured, pairs.simulated
        decoded = _log_ratio(theirs.decode_ms(), ours.decode_ms(), self._decoded)
        return np.concatenate([decoded, _log_ratio(_lasted(theirs), _lasted(ours), self._took)])

    def _tell(self, times: HostTimes, residuals: Float64) -> None:
        words = f"host {times.host_s * 1e3:.4f} ms a step"
        if self._per_request or times.per_request_s:
            words += f", {times.per_request_s * 1e6:.3f} us a request"
        self._say(
            f"simulation {self.num_simulations}: {words}: {100 * objective(residuals):.3f} % off"
        )


def _lasted(times: Times) -> Float64:
    return times.latencies_ms()["latency"]


def _above_zero(ours: Float64, theirs: Float64) -> Bools:
    """Where both have a logarithm."""
    return (ours > 0) & (theirs > 0)


def _log_ratio(theirs: Float64, ours: Float64, rows: Bools) -> Float64:
    ratio: Float64 = np.log(theirs[rows] / ours[rows])
    return ratio


def _mean_step(log: RunLog) -> tuple[float, float]:
    """Seconds of a mean step, and of that per request in it."""
    steps = log.steps
    num_steps = int(steps.num_steps.sum())
    step_s = int((steps.device_ns + steps.host_ns).sum()) / num_steps / NS_PER_S
    rows = steps.num_decode_rows + steps.num_prefill_rows
    return step_s, step_s / (int((rows * steps.num_steps).sum()) / num_steps)


def _remarks(times: HostTimes, correlation: float | None, *, per_request: bool) -> Iterator[str]:
    if times.host_s == 0:
        yield "host_s is 0: no constant makes simulated steps any more like the measured ones"
    if per_request and times.per_request_s == 0:
        yield "host_per_request_s is 0: no time per request does"
    if correlation is not None and abs(correlation) > _ALIKE:
        yield (
            f"the two times are hardly told apart (correlation {correlation:+.2f}): their sum in a"
            " usual step is better known than either"
        )
