"""Fits coefficients to measured runs, and holds those that the runs do not determine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibrate.coefficients.certainty import certainty
from calibrate.coefficients.coefficient import Coefficient
from calibrate.coefficients.minimise import Minimum, measured_slopes, minimise, size
from calibrate.coefficients.refusals import Refusal, alike, uncertain
from calibrate.coefficients.runs import FitRun
from calibrate.coefficients.trials import Trials
from sim.core.arrays import Float64
from sim.core.errors import InputError

Say = Callable[[str], None]

_MOST_STEPS = 12
_MOST_POLISHING_STEPS = 3


@dataclass(frozen=True, slots=True)
class Found:
    """A fitted coefficient: its value, and the ends of its 95 % interval."""

    key: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CoefficientFit:
    """Fitted coefficients, and what is left.

    Attributes:
        found: the coefficients that the runs determine, the most important first.
        refused: the others.
        values: of all coefficients, by key.
        size: robust root mean square of the residuals, which are relative errors.
        num_requests: requests that the fit has seen.
        num_simulations: simulations that were made.
    """

    found: Sequence[Found]
    refused: Sequence[Refusal]
    values: Mapping[str, float]
    size: float
    num_requests: int
    num_simulations: int


def closeness(runs: Sequence[FitRun], coefficients: Sequence[Coefficient], step_s: float) -> float:
    """How far times are off after a quick fit. Settings are compared by it."""
    trials = Trials(runs, coefficients, step_s)
    return size(_fast_search(trials, trials.start, lambda _: None).residuals, trials.rows.count)


def fit_coefficients(
    runs: Sequence[FitRun], coefficients: Sequence[Coefficient], step_s: float, say: Say
) -> CoefficientFit:
    """Fit, and hold one coefficient after the other until the runs determine all that are left.

    Args:
        runs: measured runs of one server.
        coefficients: the most important first. If the runs determine only the sum of several, the
            last of them is held.
        step_s: duration of a mean step.
        say: called with a line about each round.

    Raises:
        InputError: the runs have too few requests, or determine no coefficient.
    """
    trials = Trials(runs, coefficients, step_s)
    refused: list[Refusal] = []
    minimum = _fast_search(trials, trials.start, say)
    is_polished = False
    while True:
        judged = _judge(trials, minimum)
        if judged.refused is not None:
            place, refusal = judged.refused
            say(f"{refusal.key} is not determined: fit again without it")
            refused.append(refusal)
            trials.hold(place, refusal.tied_to)
            if not trials.coefficients:
                raise InputError(f"the results determine no coefficient: {refusal.reason}")
            start = np.delete(minimum.amounts, place)
            if refusal.tied_to is not None:
                # From now on the two are equal: start with half of their sum.
                keys = [each.key for each in trials.coefficients]
                leader = keys.index(refusal.tied_to)
                start[leader] = (start[leader] + minimum.amounts[place]) / 2
            minimum = _fast_search(trials, start, say)
            is_polished = False
        elif not is_polished:
            minimum = _exact_search(trials, minimum, say)
            is_polished = True
        else:
            break
    return CoefficientFit(
        found=judged.found,
        refused=refused,
        values=trials.values(minimum.amounts),
        size=size(minimum.residuals, trials.rows.count),
        num_requests=trials.num_requests,
        num_simulations=trials.num_simulations,
    )


def _fast_search(trials: Trials, start: Float64, say: Say) -> Minimum:
    """Search with slopes for unchanged decisions, which take one simulation a step."""
    minimum = minimise(
        trials.residuals,
        start,
        slopes=lambda at, widths: (trials.frozen_slopes(at, widths), ()),
        lowest=[each.lowest_amount for each in trials.coefficients],
        weigh=trials.rows.weight,
        most_rounds=_MOST_STEPS,
    )
    return _announced(trials, minimum, say)


def _exact_search(trials: Trials, minimum: Minimum, say: Say) -> Minimum:
    """Search on with the slopes of whole simulations, in which a slow step delays later requests.

    They take two simulations for each coefficient.
    """
    lowest = [each.lowest_amount for each in trials.coefficients]
    better = minimise(
        trials.residuals,
        minimum.amounts,
        slopes=measured_slopes(trials.residuals, lowest),
        lowest=lowest,
        weigh=trials.rows.weight,
        most_rounds=_MOST_POLISHING_STEPS,
    )
    return _announced(trials, better, say)


def _announced(trials: Trials, minimum: Minimum, say: Say) -> Minimum:
    off_pct = 100 * size(minimum.residuals, trials.rows.count)
    say(f"{trials.num_simulations} simulations: times are {off_pct:.2f} % off")
    return minimum


@dataclass(frozen=True, slots=True)
class _Judged:
    """The fitted coefficients, and the index and the refusal of one that is not determined."""

    found: list[Found]
    refused: tuple[int, Refusal] | None


def _judge(trials: Trials, minimum: Minimum) -> _Judged:
    free = trials.coefficients
    slopes = trials.frozen_slopes(minimum.amounts, minimum.widths)
    held = np.array([each.held_amount for each in free])
    sure = certainty(minimum.amounts, held, minimum.residuals, slopes, trials.rows)
    found = [
        _found(each, amount, half)
        for each, amount, half in zip(
            free, minimum.amounts.tolist(), sure.half_width.tolist(), strict=True
        )
    ]
    refused = alike(free, slopes[trials.rows.is_decode_time])
    if refused is None and (place := sure.least_determined()) is not None:
        refused = place, uncertain(free[place], found[place].low, found[place].high)
    return _Judged(found, refused)


def _found(coefficient: Coefficient, amount: float, half: float) -> Found:
    ends = (max(amount - half, coefficient.lowest_amount), amount + half)
    low, high = sorted(coefficient.value(end) for end in ends)
    return Found(coefficient.key, coefficient.value(amount), low, high)
