"""The client's limit on a request's output, and a guess of its length."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from sim.core.arrays import Int64
from sim.strict_model import StrictModel
from sim.workload.limits import MAX_OUTPUT_FACTOR, MAX_TOKENS

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
    """How far the guesses are off: the standard deviation of their logarithm."""


PredictedOutput = Annotated[ExactPrediction | LognormalPrediction, Field(discriminator="kind")]


def limit_outputs(limit: MaxNewTokens | None, output_tokens: Int64, own: Int64 | None) -> Int64:
    """`max_new_tokens` of every request, shape [num_requests].

    Args:
        limit: a number; a factor of the output length; or None: the limits that the trace gives.
        output_tokens: output lengths, shape [num_requests].
        own: the trace's limits; None: it has none, and the output lengths are the limits.
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


def predict_outputs(
    prediction: PredictedOutput | None, output_tokens: Int64, rng: np.random.Generator
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
