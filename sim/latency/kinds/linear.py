"""Step time as a weighted sum of new tokens, decode rows and context."""

import math

import numpy as np
from mypy_extensions import mypyc_attr

from sim.core.arrays import Int64
from sim.core.units import MAX_TIME_NS, NS_PER_S, seconds_to_ns
from sim.latency.features import StepFeatures
from sim.latency.model import StepTime, equal_ns

_LONGEST_NS = float(MAX_TIME_NS)
_NS_PER_S = np.array(NS_PER_S, dtype=np.float64)


def _half_even(number: float) -> int:
    """`round(number)`, for which compiled code need not ask Python."""
    below = math.floor(number)
    rest = number - below
    return below + 1 if rest > 0.5 or (rest == 0.5 and below % 2) else below


@mypyc_attr(allow_interpreted_subclasses=True)
class LinearLatency:
    """Device time as a weighted sum, constant host time, and a cold start in the first step.

    The sum is step + per_prefill_token x (new prefill tokens) + per_decode_request x (decode rows)
    + per_context_token x (context tokens) + per_draft_token x (draft tokens). It is computed from
    left to right in double precision and rounded half-even to ns, so that a step and a run of steps
    agree to the bit.
    """

    def __init__(
        self,
        *,
        step_s: float,
        per_prefill_token_s: float,
        per_decode_request_s: float,
        per_context_token_s: float,
        host_s: float = 0.0,
        cold_start_s: float = 0.0,
        per_draft_token_s: float = 0.0,
    ) -> None:
        self._step_s = step_s
        self._per_prefill_token_s = per_prefill_token_s
        self._per_decode_request_s = per_decode_request_s
        self._per_context_token_s = float(per_context_token_s)
        # numpy converts a number anew at each use, which takes longer than a short run's times do.
        self._per_context_token = np.array(per_context_token_s, dtype=np.float64)
        self._per_draft_token_s = per_draft_token_s
        self._host_ns = seconds_to_ns(host_s)
        self.depends_on_step_alone = True
        self._cold_start_ns = seconds_to_ns(cold_start_s)
        self.growth_terms: tuple[float, ...] = (
            float(self._cold_start_ns),
            float(self._host_ns),
            step_s,
            per_decode_request_s,
            self._per_context_token_s,
        )

    def step_ns(self, step: StepFeatures) -> StepTime:
        device_s = (
            self._step_s
            + self._per_prefill_token_s * step.num_prefill_tokens
            + self._per_decode_request_s * step.num_decode_rows
            + self._per_context_token_s * step.num_context_tokens
        )
        if step.num_draft_tokens:
            device_s += self._per_draft_token_s * step.num_draft_tokens
        device_ns = _half_even(device_s * NS_PER_S) or 1
        # Half as long as `StepTime(...)`, which is a method that Python makes of text.
        return tuple.__new__(StepTime, (device_ns + self._cold_start_ns, self._host_ns))

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        rows = first.num_decode_rows
        context = float(first.num_context_tokens)
        constant_s = (
            self._step_s
            + self._per_prefill_token_s * first.num_prefill_tokens
            + self._per_decode_request_s * rows
        )
        duration = np.arange(context, context + rows * num_steps, rows, dtype=np.float64)
        np.multiply(duration, self._per_context_token, duration)
        np.add(duration, np.array(constant_s), duration)
        np.multiply(duration, _NS_PER_S, duration)
        # Times never fall, because the context grows.
        if duration.item(-1) > _LONGEST_NS:
            np.minimum(duration, _LONGEST_NS, out=duration)
        device_ns = np.rint(duration, duration).astype(np.int64)
        if device_ns.item(0) < 1:
            np.maximum(device_ns, 1, out=device_ns)
        if self._cold_start_ns:
            device_ns[0] += self._cold_start_ns
        return device_ns, equal_ns(self._host_ns, num_steps)

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        """Later steps have no cold start."""
        if self._cold_start_ns:
            self._cold_start_ns = 0
            self.growth_terms = (0.0, *self.growth_terms[1:])
