"""Which coefficients the measured runs do not determine, why, and what measurement would."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrate.coefficients.coefficient import FRONT_END, Coefficient
from sim.core.arrays import Float64

STEP, ROWS, CONTEXT = (
    f"latency.{name}" for name in ("step_s", "per_decode_request_s", "per_context_token_s")
)
_CONCURRENCIES = "measure at several concurrencies, such as 1, 8 and 64, and give all the files"
# What to measure so that a coefficient is determined, by its key.
_MEASURE = {
    STEP: "measure one request at a time",
    "latency.per_prefill_token_s": "measure prompts of 100 and of 4,000 tokens",
    FRONT_END: "measure prompts of 100 and of 4,000 tokens, one request at a time",
    ROWS: _CONCURRENCIES,
    CONTEXT: "measure prompts of 100 and of 8,000 tokens at the same concurrency",
    "latency.mfu": "measure prompts of 4,000 tokens and more",
    "latency.bandwidth_efficiency": "measure outputs of 100 tokens and more, one request at a time",
    "latency.efficiency": _CONCURRENCIES,
    "latency.step_overhead_s": _CONCURRENCIES,
    "latency.host_s": _CONCURRENCIES,
    "host.step_gap_s": _CONCURRENCIES,
}
# To determine the first, its ratio to each of the others must differ between requests.
_NEEDS_VARIETY = {ROWS: (STEP,), CONTEXT: (STEP, ROWS)}
# The least ratio of the ninth decile to the first decile of that ratio.
_LEAST_VARIETY = 1.25


@dataclass(frozen=True, slots=True)
class Refusal:
    """A coefficient that is not determined.

    Attributes:
        key: its key in a scenario.
        held: the value that it has instead.
        reason: why it is not determined.
        tied_to: the key of another coefficient that has the same effect in these runs; None: there
            is none.
    """

    key: str
    held: float
    reason: str
    tied_to: str | None = None

    def __str__(self) -> str:
        instead = f"held at {self.held:g}"
        if self.tied_to is not None:
            instead = f"assumed to take as long as {self.tied_to.partition('.')[2]}"
        measure = f"to determine it, {_MEASURE[self.key]}"
        return f"not determined: {self.key}, {instead}: {self.reason}; {measure}"


def alike(
    coefficients: Sequence[Coefficient], decode_slopes: Float64
) -> tuple[int, Refusal] | None:
    """The last coefficient that is not determined because all requests are alike, and its refusal.

    Args:
        coefficients: those that are fitted.
        decode_slopes: how the decode time of each request changes with each amount; shape
            [num_requests, num_coefficients].
    """
    place_of = {each.key: place for place, each in enumerate(coefficients)}
    for key, others in reversed(_NEEDS_VARIETY.items()):
        for other in others:
            if key in place_of and other in place_of:
                place, beside = place_of[key], place_of[other]
                # A request without decode steps has no ratio.
                decoded = decode_slopes[decode_slopes[:, beside] != 0]
                if not len(decoded):
                    continue
                share = decoded[:, place] / decoded[:, beside]
                share *= coefficients[beside].unit / coefficients[place].unit
                low, high = np.quantile(share, (0.1, 0.9)).tolist()
                if high < _LEAST_VARIETY * low:
                    tied_to = other if (key, other) == (CONTEXT, ROWS) else None
                    reason = _reason(key, other, low, high)
                    return place, Refusal(key, coefficients[place].held, reason, tied_to)
    return None


def _reason(key: str, other: str, low: float, high: float) -> str:
    numbers = f"{low:,.1f} to {high:,.1f}" if high < 100 else f"{low:,.0f} to {high:,.0f}"
    what = {
        (ROWS, STEP): f"the load was always the same: {numbers} requests decoded at a time",
        (CONTEXT, STEP): f"the load was always the same: {numbers} tokens of context in a step",
        (CONTEXT, ROWS): f"contexts were always the same: {numbers} tokens on average",
    }
    return what[key, other]


def uncertain(coefficient: Coefficient, low: float, high: float) -> Refusal:
    """The refusal of a coefficient whose interval is too wide."""
    reason = f"anything from {low:.3g} to {high:.3g} explains the results about as well"
    return Refusal(coefficient.key, coefficient.held, reason)
