"""Estimates the host time of a step from time stamps alone.

The estimate is the host time with which a simulation comes nearest to the measured requests.

A request takes part in a known number of steps from its first token to its last, and host time
makes each of them longer. Times before the first token are not used: they depend more on the moment
of arrival and on earlier requests than on a step. Errors are relative to the measured times, so
that every request has the same weight.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calibrate.measured.compare import RunComparison
from calibrate.measured.equations import Solution, objective, solve
from calibrate.measured.host_trials import HostTrials
from calibrate.measured.uncertainty import covariance
from sim.core.errors import InputError
from sim.latency.host import HostTimes

# A remark is made if the errors of the two times are correlated more strongly than this.
_HIGH_CORRELATION = 0.95
# Beyond this condition number the effects of the two times cannot be told apart.
_MAX_CONDITION = 1e6
# If decode times grow by a smaller share of the host time, the device's work hides it.
_HIDDEN = 0.05


@dataclass(frozen=True, slots=True)
class HostFit:
    """Estimated host times and how well they explain what was measured.

    Attributes:
        times: the estimate.
        std_errors: of the estimate, see `calibrate.measured.uncertainty`.
        correlation: of the errors of the two times; None: there is only one.
        before, after: the simulation with the scenario's own times and with the estimate.
        objective_before, objective_after: robust root mean square of the relative errors of decode
            times.
        num_requests: requests whose decode times were used.
        num_simulations: simulations that were made.
        remarks: remarks for the reader, one line each.
    """

    times: HostTimes
    std_errors: HostTimes
    correlation: float | None
    before: RunComparison
    after: RunComparison
    objective_before: float
    objective_after: float
    num_requests: int
    num_simulations: int
    remarks: tuple[str, ...]


def fit_host_times(trials: HostTrials) -> HostFit:
    """Estimate host times.

    Raises:
        InputError: host time, or one of its two parts, has no effect on the requests' times.
    """
    before = objective(trials.trial(trials.start).residuals)
    solution = solve(trials.trial, trials.start)
    _check_identifiable(solution)
    times = trials.times(solution.unknowns)
    spread = covariance(solution, *trials.spans_s())
    errors = np.sqrt(np.diag(spread))
    correlation = None
    if len(errors) > 1:
        correlation = float(spread[0, 1] / (errors[0] * errors[1])) if errors.all() else 0.0
    return HostFit(
        times=times,
        std_errors=HostTimes(
            float(errors[0] * trials.units_s[0]),
            float(errors[1] * trials.units_s[1]) if len(errors) > 1 else 0.0,
        ),
        correlation=correlation,
        before=trials.first,
        after=trials.compared(times),
        objective_before=before,
        objective_after=objective(solution.residuals),
        num_requests=trials.num_requests,
        num_simulations=trials.num_simulations,
        remarks=tuple(_remarks(solution, correlation)),
    )


def _check_identifiable(solution: Solution) -> None:
    """Check that the host times change the decode times, each in its own way."""
    instruments = solution.instruments
    shares = (instruments * solution.slopes).sum(axis=0) / (instruments**2).sum(axis=0)
    if shares.max() < _HIDDEN:
        raise InputError(
            "host time does not change how long requests decode in this scenario: under overlap"
            " scheduling it is hidden behind the device time"
        )
    if np.linalg.cond(instruments) > _MAX_CONDITION:
        raise InputError(
            "--per-request: all steps have the same number of requests, so a constant and a time"
            " per request cannot be told apart"
        )


def _remarks(solution: Solution, correlation: float | None) -> Iterator[str]:
    names = ("host_s", "host_per_request_s")
    for name, value in zip(names, solution.unknowns, strict=False):  # one or both are unknown
        if not value:
            yield f"{name} is 0: with a larger value, simulated decode times are too long"
    if correlation is not None and abs(correlation) > _HIGH_CORRELATION:
        yield (
            f"the two times can hardly be told apart (correlation {correlation:+.2f}): their sum in"
            " a usual step is better known than either of them"
        )
