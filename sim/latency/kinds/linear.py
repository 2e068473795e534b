"""Step time as a weighted sum of new tokens, decode rows and context."""

import numpy as np
from mypy_extensions import mypyc_attr

from sim.core.arrays import Int64
from sim.core.units import MAX_TIME_NS, NS_PER_S, seconds_to_ns
from sim.latency.features import StepFeatures
from sim.latency.model import StepTime, equal_ns

_LONGEST_NS = float(MAX_TIME_NS)


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
        self._per_draft_token_s = per_draft_token_s
        self._host_ns = seconds_to_ns(host_s)
        self.depends_on_step_alone = True
        self._cold_start_ns = seconds_to_ns(cold_start_s)

    def step_ns(self, step: StepFeatures) -> StepTime:
        device_s = (
            self._step_s
            + self._per_prefill_token_s * step.num_prefill_tokens
            + self._per_decode_request_s * step.num_decode_rows
            + self._per_context_token_s * step.num_context_tokens
        )
        if step.num_draft_tokens:
            device_s += self._per_draft_token_s * step.num_draft_tokens
        device_ns = round(device_s * NS_PER_S) or 1
        return StepTime(device_ns + self._cold_start_ns, self._host_ns)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        rows = first.num_decode_rows
        context = first.num_context_tokens
        contexts = np.arange(context, context + rows * num_steps, rows, dtype=np.int64)
        constant_s = (
            self._step_s
            + self._per_prefill_token_s * first.num_prefill_tokens
            + self._per_decode_request_s * rows
        )
        duration = self._per_context_token_s * contexts
        duration += constant_s
        duration *= NS_PER_S
        # Times never fall, because the context grows.
        if duration[-1] > _LONGEST_NS:
            np.minimum(duration, _LONGEST_NS, out=duration)
        device_ns = np.rint(duration, out=duration).astype(np.int64)
        if device_ns[0] < 1:
            np.maximum(device_ns, 1, out=device_ns)
        device_ns[0] += self._cold_start_ns
        return device_ns, equal_ns(self._host_ns, num_steps)

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        """Later steps have no cold start."""
        self._cold_start_ns = 0
