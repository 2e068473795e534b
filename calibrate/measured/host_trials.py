"""Simulations with different host times, and the errors of decode times in each."""

from collections.abc import Callable

import numpy as np

from calibrate.measured.compare import RunComparison, compare
from calibrate.measured.equations import SolverTrial, objective
from calibrate.measured.pairs import Selection, join
from calibrate.measured.step_counts import decode_steps, mean_rows, mean_step_ns
from sim.core.arrays import Float64
from sim.core.errors import InputError
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.latency.host import HostTimes
from sim.runlog import RunLog
from sim.runlog.run_log_file import MeasuredRun

# Simulates the scenario with these host times.
Simulate = Callable[[HostTimes], RunLog]
Say = Callable[[str], None]

_FEWEST_REQUESTS = 10
_SECOND_DIGITS, _PER_REQUEST_DIGITS = 9, 12
_MOST_S = 60.0


class HostTrials:
    """Makes trials; equal host times are simulated once.

    The unknowns are in units of `units_s`: a constant of 1 is as long as the mean step of the first
    simulation, and so is a time per request of 1 in a step with the mean number of requests.

    Args:
        measured: the measured run.
        simulate: see `Simulate`.
        selection: which requests count.
        start: host times of the first simulation; `per_request_s` is kept unless it is an unknown.
        per_request: whether the time per request is an unknown, too.
        say: called with one line about each simulation.

    Raises:
        InputError: too few requests decoded in both runs.
    """

    def __init__(
        self,
        measured: MeasuredRun,
        simulate: Simulate,
        *,
        selection: Selection,
        start: HostTimes,
        per_request: bool,
        say: Say,
    ) -> None:
        self._measured = measured
        self._simulate = simulate
        self._selection = selection
        self._per_request = per_request
        self._start = start
        self._say = say
        log = simulate(start)
        self.first = self._compare(log)
        step_s = mean_step_ns(log.steps) / NS_PER_S
        self.units_s = (step_s, step_s / mean_rows(log.steps))
        pairs = self.first.pairs
        self._decoded = (pairs.measured.decode_ms() > 0) & (pairs.simulated.decode_ms() > 0)
        self.num_requests = int(self._decoded.sum())
        if self.num_requests < _FEWEST_REQUESTS:
            raise InputError(
                f"{self.num_requests} requests of two tokens or more finished in both runs;"
                f" at least {_FEWEST_REQUESTS} are needed to estimate host times"
            )
        first = self._judge(start, log, self.first)
        self._known: dict[HostTimes, tuple[SolverTrial, RunComparison]] = {
            start: (first, self.first)
        }
        self._announce(start)

    @property
    def num_simulations(self) -> int:
        return len(self._known)

    @property
    def start(self) -> Float64:
        both = np.array([self._start.host_s, self._start.per_request_s]) / self.units_s
        return both[: 1 + self._per_request]

    def times(self, unknowns: Float64) -> HostTimes:
        host_s = min(float(unknowns[0] * self.units_s[0]), _MOST_S)
        per_request_s = self._start.per_request_s
        if self._per_request:
            per_request_s = min(float(unknowns[1] * self.units_s[1]), _MOST_S)
        return HostTimes(round(host_s, _SECOND_DIGITS), round(per_request_s, _PER_REQUEST_DIGITS))

    def trial(self, unknowns: Float64) -> SolverTrial:
        """Relative errors of decode times, and the effect of one more unit of each unknown on them.

        Raises:
            InputError: not the same requests finish as in the first simulation.
        """
        times = self.times(unknowns)
        if times not in self._known:
            log = self._simulate(times)
            comparison = self._compare(log)
            self._known[times] = self._judge(times, log, comparison), comparison
            self._announce(times)
        return self._known[times][0]

    def compared(self, times: HostTimes) -> RunComparison:
        """The comparison of a trial with the measured run."""
        return self._known[times][1]

    def spans_s(self) -> tuple[Float64, Float64]:
        """The measured times at which each request of the trials began to decode, and finished."""
        times = self.first.pairs.measured
        rows = self._decoded
        return times.first_token_ns[rows] / NS_PER_S, times.finish_ns[rows] / NS_PER_S

    def _compare(self, log: RunLog) -> RunComparison:
        return compare(join(self._measured, log.requests, self._selection))

    def _judge(self, times: HostTimes, log: RunLog, comparison: RunComparison) -> SolverTrial:
        pairs = comparison.pairs
        if pairs.rid != self.first.pairs.rid:
            raise InputError(
                "the requests that finish in the simulation change with the host times:"
                f" {len(self.first.pairs)} at first, {len(pairs)} with {times.host_s} s a step"
            )
        measured_ms = pairs.measured.decode_ms()[self._decoded]
        residuals = pairs.simulated.decode_ms()[self._decoded] / measured_ms - 1
        row_of = {rid: row for row, rid in enumerate(log.requests.rid)}
        rows = np.array([row_of[rid] for rid in pairs.rid])[self._decoded]
        units_ms = np.array(self.units_s) * NS_PER_S / NS_PER_MS
        instruments: Float64 = np.stack(decode_steps(log), axis=1)[rows] * units_ms
        instruments /= measured_ms[:, None]
        return SolverTrial(residuals, instruments[:, : 1 + self._per_request])

    def _announce(self, times: HostTimes) -> None:
        words = f"host {times.host_s * 1e3:.4f} ms a step"
        if self._per_request or times.per_request_s:
            words += f", {times.per_request_s * 1e6:.3f} µs a request"
        off_pct = 100 * objective(self._known[times][0].residuals)
        number = self.num_simulations
        self._say(f"simulation {number}: {words}: decode times {off_pct:.3f} % off")
