"""Host time a step, estimated from time stamps alone: whose simulation comes nearest to them?

Host time is in how long each request decoded: from its first token to its last it takes part in a
known number of steps, and each is longer by it. Times before the first token are left aside: they
say more of the moment a request came, and of all who came before, than of a step. Errors are taken
relative to what was measured, so that every request counts alike.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calibrate.measured.compare import Comparison
from calibrate.measured.equations import Solution, objective, solve
from calibrate.measured.host_trials import HostTrials
from calibrate.measured.uncertainty import covariance
from sim.core.errors import InputError
from sim.latency.host_times import HostTimes

_ALIKE = 0.95
# Beyond this two columns of numbers are one and the same.
_SINGULAR = 1e6
# Less of it that shows in decode times is host time that is hidden.
_HIDDEN = 0.05


@dataclass(frozen=True, slots=True)
class HostFit:
    """Estimated host times and how well they explain what was measured.

    Attributes:
        times: the estimate.
        std_errors: of it, see `calibrate.measured.uncertainty`.
        correlation: of the errors of the two times; None: there is but one.
        before, after: the simulation with the scenario's own times and with the estimate.
        objective_before, objective_after: robust root mean square of the relative errors of decode
            times.
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


def fit_host_times(trials: HostTrials) -> HostFit:
    """Estimate host times.

    Raises:
        InputError: requests' times do not tell host time, or not one part of it from the other.
    """
    before = objective(trials.trial(trials.start).residuals)
    solution = solve(trials.trial, trials.start)
    _check_told(solution)
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


def _check_told(solution: Solution) -> None:
    instruments = solution.instruments
    shown = (instruments * solution.slopes).sum(axis=0) / (instruments**2).sum(axis=0)
    if shown.max() < _HIDDEN:
        raise InputError(
            "host time does not show in how long requests decode in this scenario: under overlap"
            " scheduling it is hidden behind the device's"
        )
    if np.linalg.cond(instruments) > _SINGULAR:
        raise InputError(
            "--per-request: steps all have as many requests, which does not tell a constant from a"
            " time per request"
        )


def _remarks(solution: Solution, correlation: float | None) -> Iterator[str]:
    names = ("host_s", "host_per_request_s")
    for name, value in zip(names, solution.unknowns, strict=False):
        if not value:
            yield f"{name} is 0: with more of it, simulated decode times are too long"
    if correlation is not None and abs(correlation) > _ALIKE:
        yield (
            f"the two times are hardly told apart (correlation {correlation:+.2f}): their sum in a"
            " usual step is better known than either"
        )
