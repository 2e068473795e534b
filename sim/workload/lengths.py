"""Distributions of whole numbers, such as a prompt's tokens or a session's turns."""

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from sim.core.arrays import Int64
from sim.core.errors import InputError, KeyPath
from sim.strict_model import KeysError, StrictModel
from sim.workload.limits import MAX_CV, MAX_TOKENS

Length = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
_Mean = Annotated[float, Field(ge=1, le=MAX_TOKENS)]


class ConstantLength(StrictModel):
    """Always the same length."""

    kind: Literal["constant"]
    value: Length
    """The length."""


class UniformLength(StrictModel):
    """Every whole number of a range is equally likely."""

    kind: Literal["uniform"]
    min: Length
    """The smallest length."""
    max: Length
    """The largest length. At least `min`."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _require_ordered(self.min, self.max)
        return self


class Clipped(StrictModel):
    """Lengths below `min` or above `max` become `min` or `max`."""

    min: Length | None = None
    """Shorter lengths become this one. Without it: 1."""
    max: Length | None = None
    """Longer lengths become this one. At least `min`. Without it: no limit."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _require_ordered(self.min, self.max)
        return self


class LognormalLength(Clipped):
    """A log-normal distribution. A draw is rounded, then clipped to `min` and `max`."""

    kind: Literal["lognormal"]
    mean: _Mean
    """Mean, before rounding and clipping."""
    cv: Annotated[float, Field(ge=0, le=MAX_CV)]
    """Coefficient of variation, before rounding and clipping."""


class GeometricLength(Clipped):
    """A geometric distribution that begins at 1. A draw is clipped to `min` and `max`."""

    kind: Literal["geometric"]
    mean: _Mean
    """Mean, before clipping."""


class ChoiceLength(StrictModel):
    """One of a list of lengths."""

    kind: Literal["choice"]
    values: Annotated[tuple[Length, ...], Field(strict=False, min_length=1)]
    """The lengths."""
    weights: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(strict=False)] | None = None
    """Relative frequencies, one for each value. Without it: all values are equally likely."""

    @model_validator(mode="after")
    def _weights_match(self) -> Self:
        if self.weights is None:
            return self
        if len(self.weights) != len(self.values):
            raise KeysError(
                f"{len(self.values)} values but {len(self.weights)} weights", "values", "weights"
            )
        if not 0 < sum(self.weights) < float("inf"):
            raise KeysError("the weights must add up to a positive, finite number", "weights")
        return self


LengthDistribution = Annotated[
    ConstantLength | UniformLength | LognormalLength | GeometricLength | ChoiceLength,
    Field(discriminator="kind"),
]


def draw_lengths(
    distribution: LengthDistribution, num_draws: int, rng: np.random.Generator, *, key: KeyPath
) -> Int64:
    """Draw whole numbers >= 1, shape [num_draws].

    Raises:
        InputError: a draw is above the limit on tokens; the error is about `key`.
    """
    drawn = _draw(distribution, num_draws, rng)
    if isinstance(distribution, LognormalLength | GeometricLength):
        drawn = np.clip(drawn, distribution.min or 1, distribution.max)
    longest = drawn.max(initial=1)
    if longest > MAX_TOKENS:
        raise InputError(
            f"drew {longest:.0f}, above {MAX_TOKENS}: lower the mean or set max", key=key
        )
    return drawn.astype(np.int64)


def _draw(
    distribution: LengthDistribution, num_draws: int, rng: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.int64 | np.float64]]:
    match distribution:
        case ConstantLength():
            return np.full(num_draws, distribution.value, dtype=np.int64)
        case UniformLength():
            return rng.integers(distribution.min, distribution.max, num_draws, endpoint=True)
        case LognormalLength():
            variance = np.log1p(distribution.cv**2)
            mu = np.log(distribution.mean) - variance / 2
            return np.rint(rng.lognormal(mu, np.sqrt(variance), num_draws))
        case GeometricLength():
            return rng.geometric(1 / distribution.mean, num_draws)
        case ChoiceLength():
            values = np.array(distribution.values, dtype=np.int64)
            if distribution.weights is None:
                return rng.choice(values, num_draws)
            weights = np.array(distribution.weights)
            return rng.choice(values, num_draws, p=weights / weights.sum())


def _require_ordered(low: int | None, high: int | None) -> None:
    if low is not None and high is not None and low > high:
        raise KeysError(f"min {low} is above max {high}", "min", "max")
