"""When requests, sessions and later turns arrive: arrival processes and think times."""

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from sim.core.arrays import Float64, Int64
from sim.core.errors import InputError, KeyPath
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.validation import ByKind, KeysError, StrictModel
from sim.workload import MAX_CV, MAX_RATE_RPS, MAX_REQUESTS
from sim.workload.rng import draw_lognormal

_Rate = Annotated[float, Field(gt=0, le=MAX_RATE_RPS)]
# With a smaller `cv` all gaps are equal in floating point, and its square may underflow.
_MIN_CV = 1e-15
_Seconds = Annotated[float, Field(ge=0, le=1e9)]


class PoissonArrivals(StrictModel):
    """Independent, exponentially distributed gaps.

    The first request arrives one gap after time 0.
    """

    kind: Literal["poisson"]
    rate_rps: _Rate
    """Mean rate. Unit: requests/s."""


class GammaArrivals(StrictModel):
    """Independent, gamma-distributed gaps. The first request arrives one gap after time 0."""

    kind: Literal["gamma"]
    rate_rps: _Rate
    """Mean rate. Unit: requests/s."""
    cv: Annotated[float, Field(gt=0, le=MAX_CV)]
    """Coefficient of variation of the gaps. 1 gives Poisson arrivals; more gives bursts."""


class ConstantArrivals(StrictModel):
    """Equal gaps. The first request arrives at time 0."""

    kind: Literal["constant"]
    rate_rps: _Rate
    """Rate. Unit: requests/s."""


class BurstArrivals(StrictModel):
    """Several requests at once, at equal intervals. The first burst arrives at time 0."""

    kind: Literal["burst"]
    size: Annotated[int, Field(ge=1, le=MAX_REQUESTS)]
    """Number of requests in a burst. Unit: requests."""
    every_s: _Seconds
    """Time from one burst to the next. Unit: s."""


class CycleArrivals(StrictModel):
    """Independent, exponentially distributed gaps at a rate that repeats a pattern, such as a day.

    The period is cut into parts of equal length, one for each number of the pattern.
    """

    kind: Literal["cycle"]
    rate_rps: _Rate
    """Mean rate over a period. Unit: requests/s."""
    pattern: Annotated[
        tuple[Annotated[float, Field(ge=0, le=1e9)], ...],
        Field(strict=False, min_length=1, max_length=10_000),
    ]
    """The rates of the parts in proportion to each other, of which one or more are above 0. 24
    numbers are the hours of a day."""
    period_s: Annotated[float, Field(gt=0, le=1e9)] = 86_400
    """Length of a period. Unit: s."""

    @model_validator(mode="after")
    def _check_pattern(self) -> Self:
        if not any(self.pattern):
            raise KeysError("pattern must have a number above 0", "pattern")
        return self


Arrivals = Annotated[
    PoissonArrivals | GammaArrivals | ConstantArrivals | BurstArrivals | CycleArrivals,
    ByKind(),
]


class ConstantThink(StrictModel):
    """Always the same pause."""

    kind: Literal["constant"]
    value: _Seconds
    """The pause. Unit: s."""


class ExponentialThink(StrictModel):
    """An exponentially distributed pause."""

    kind: Literal["exponential"]
    mean: Annotated[float, Field(gt=0, le=1e9)]
    """The mean pause. Unit: s."""


class LognormalThink(StrictModel):
    """A log-normally distributed pause: most are short, and a few are very long."""

    kind: Literal["lognormal"]
    mean: Annotated[float, Field(gt=0, le=1e9)]
    """The mean pause, before `max`. Unit: s."""
    cv: Annotated[float, Field(ge=0, le=MAX_CV)]
    """Coefficient of variation, before `max`."""
    max: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Longer pauses become this one, as a tool that is stopped then. Without it: no limit. Unit:
    s."""


ThinkTime = Annotated[ConstantThink | ExponentialThink | LognormalThink, ByKind()]


def draw_arrivals_ns(
    arrivals: Arrivals, num_arrivals: int, rng: "np.random.Generator", *, key: KeyPath
) -> Int64:
    """Draw arrival times in ns, counted from time 0, ascending; shape [num_arrivals].

    Raises InputError: the last time is beyond the clock's range; the error is about `key`.
    """
    index = np.arange(num_arrivals, dtype=np.float64)
    at_s: Float64
    match arrivals:
        case PoissonArrivals():
            at_s = np.cumsum(rng.exponential(1 / arrivals.rate_rps, num_arrivals))
        case GammaArrivals():
            shape = max(arrivals.cv, _MIN_CV) ** -2
            at_s = _slowed(np.cumsum(rng.gamma(shape, 1 / shape, num_arrivals)), arrivals.rate_rps)
        case ConstantArrivals():
            at_s = _slowed(index, arrivals.rate_rps)
        case BurstArrivals():
            at_s = index // arrivals.size * arrivals.every_s
        case CycleArrivals():
            at_s = _in_cycles(arrivals, np.cumsum(rng.exponential(1, num_arrivals)))
    return to_ns(at_s, key=key)


def draw_think_ns(
    think: ThinkTime, num_draws: int, rng: "np.random.Generator", *, key: KeyPath
) -> Int64:
    match think:
        case ConstantThink():
            seconds = np.full(num_draws, float(think.value))
        case ExponentialThink():
            seconds = rng.exponential(think.mean, num_draws)
        case LognormalThink():
            seconds = draw_lognormal(think.mean, think.cv, num_draws, rng)
            if think.max is not None:
                seconds = np.minimum(seconds, think.max)
    return to_ns(seconds, key=key)


def _in_cycles(arrivals: CycleArrivals, due: Float64) -> Float64:
    """When as many arrivals are due, on average, as `due` says."""
    pattern = np.array(arrivals.pattern) / sum(arrivals.pattern)
    by_part = np.append(0.0, np.cumsum(pattern))
    ends_s = np.linspace(0, arrivals.period_s, len(by_part))
    periods, rest = np.divmod(due / (arrivals.rate_rps * arrivals.period_s), 1)
    within_s: Float64 = np.interp(rest, by_part, ends_s)
    return periods * arrivals.period_s + within_s


def _slowed(at_s: Float64, rate_rps: float) -> Float64:
    """Rescale arrival times of rate 1 per second to `rate_rps`; infinite if a float overflows."""
    with np.errstate(over="ignore"):
        return at_s / rate_rps


def to_ns(seconds: Float64, *, key: KeyPath) -> Int64:
    """Whole nanoseconds. Raises InputError, about `key`, if a time is beyond the clock's range."""
    with np.errstate(over="ignore"):  # infinity is beyond the clock too
        times: Float64 = np.rint(seconds * NS_PER_S)
    if times.max(initial=0) > MAX_TIME_NS:
        years = float(times.max()) / NS_PER_S / 31_557_600
        raise InputError(f"reaches {years:.3g} years, beyond the clock", key=key)
    return times.astype(np.int64)
