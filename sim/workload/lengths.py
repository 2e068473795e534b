"""Lengths of prompts and outputs, shared prefixes, limits on outputs, and guesses of outputs."""

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from sim.core.arrays import Int64
from sim.core.errors import InputError, KeyPath
from sim.validation import ByKind, KeysError, StrictModel
from sim.workload import MAX_CV, MAX_OUTPUT_FACTOR, MAX_TOKENS
from sim.workload.rng import draw_lognormal

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
    ByKind(),
]


class Prefixes(StrictModel):
    """Prompt beginnings that the requests of a group share. They follow the system prompt."""

    groups: Annotated[int, Field(ge=1, le=10**6)]
    """How many different prefixes there are."""
    tokens: LengthDistribution
    """Length of a prefix. It is drawn once for each group. Unit: tokens."""
    share_probability: Annotated[float, Field(ge=0, le=1)]
    """Probability that a request begins with the prefix of a group."""
    zipf: Annotated[float, Field(ge=0, le=100)] = 1.0
    """How uneven the groups are: group g (from 0) is drawn in proportion to 1 / (g + 1) ** zipf.
    0 makes all groups equally likely."""
    unshared_as_long: bool = False
    """`true`: a request without a prefix gets extra tokens of its own. Their number is the length
    of the prefix of a drawn group, so `share_probability` changes the length of no prompt."""


def draw_lengths(
    distribution: LengthDistribution, num_draws: int, rng: "np.random.Generator", *, key: KeyPath
) -> Int64:
    """Draw whole numbers >= 1, shape [num_draws].

    Raises InputError: a draw is above the limit on tokens; the error is about `key`.
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
    distribution: LengthDistribution, num_draws: int, rng: "np.random.Generator"
) -> np.ndarray[tuple[int], np.dtype[np.int64 | np.float64]]:
    match distribution:
        case ConstantLength():
            return np.full(num_draws, distribution.value, dtype=np.int64)
        case UniformLength():
            return rng.integers(distribution.min, distribution.max, num_draws, endpoint=True)
        case LognormalLength():
            return np.rint(draw_lognormal(distribution.mean, distribution.cv, num_draws, rng))
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


_MAX_GUESS = 1 << 40


class OutputFactor(StrictModel):
    """A limit on new tokens in proportion to the output."""

    factor: Annotated[float, Field(gt=0, le=MAX_OUTPUT_FACTOR)]
    """The limit is the output length times this factor, rounded up."""


MaxNewTokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)] | OutputFactor


class ExactPrediction(StrictModel):
    """The guess is the true length."""

    kind: Literal["exact"]


class LognormalPrediction(StrictModel):
    """The guess is the true length times exp(sigma x N(0, 1)), rounded, and at least 1."""

    kind: Literal["lognormal"]
    sigma: Annotated[float, Field(ge=0, le=10)]
    """Standard deviation of the logarithm of guess / true length. 0 makes guesses exact."""


PredictedOutput = Annotated[ExactPrediction | LognormalPrediction, ByKind()]


def limit_outputs(limit: MaxNewTokens | None, output_tokens: Int64, own: Int64 | None) -> Int64:
    """`max_new_tokens` of every request, shape [num_requests].

    Without a `limit`, they are the trace's `own` limits; if it has none, the output lengths.
    """
    match limit:
        case None:
            return output_tokens if own is None else own
        case OutputFactor():
            # Rounded first: 1.1 x 10 is 11, not the 11.000000000000002 of binary fractions.
            scaled = np.round(output_tokens * limit.factor, 6)
            return np.maximum(np.ceil(scaled), 1).astype(np.int64)
        case int():
            return np.full_like(output_tokens, limit)


def quoted_tokens(output_tokens: Int64, limits: Int64) -> Int64:
    """How many tokens of each answer the next prompt of its conversation repeats.

    The last token of a finished answer is the end token, which is not quoted. An answer that the
    client's limit cuts off has no end token.
    """
    return np.where(limits < output_tokens, limits, output_tokens - 1)


def predict_outputs(
    prediction: PredictedOutput | None, output_tokens: Int64, rng: "np.random.Generator"
) -> Int64 | None:
    """A guess of each output length, >= 1, shape [num_requests]; None: no guesses."""
    match prediction:
        case None:
            return None
        case ExactPrediction():
            return output_tokens
        case LognormalPrediction():
            noise = np.exp(prediction.sigma * rng.standard_normal(len(output_tokens)))
            return np.clip(np.rint(output_tokens * noise), 1, _MAX_GUESS).astype(np.int64)
