"""Step time from the shapes of the model and the peaks of the accelerator.

Every part of a step takes as long as its arithmetic or its memory traffic, whichever is longer.
Formulas: docs/explanation/latency.md.
"""

import numpy as np

from sim.core.arrays import Int64
from sim.core.units import NS_PER_S, seconds_to_ns
from sim.latency.features import StepFeatures
from sim.latency.hardware import Hardware
from sim.latency.model import StepTime
from sim.latency.shapes import ModelShape


class RooflineLatency:
    """A lower bound of a step's device time, plus constant overheads."""

    def __init__(
        self,
        model: ModelShape,
        hardware: Hardware,
        *,
        mfu: float,
        bandwidth_efficiency: float,
        step_overhead_s: float = 0.0,
        host_s: float = 0.0,
    ) -> None:
        flops_per_s = hardware.peak_flops_per_s * mfu
        bytes_per_s = hardware.peak_bytes_per_s * bandwidth_efficiency
        num_matrix, num_head = model.num_layer_matrix_parameters, model.num_head_parameters
        self._matrix_read_s = num_matrix * model.dtype_bytes / bytes_per_s
        self._matrix_token_s = 2 * num_matrix / flops_per_s
        self._head_read_s = num_head * model.dtype_bytes / bytes_per_s
        self._head_row_s = 2 * num_head / flops_per_s
        self._kv_token_s = model.kv_bytes_per_token / bytes_per_s
        # A query-key pair costs a multiply and an add for the score, and again for the value.
        pair_s = 4 * model.num_layers * model.num_heads * model.head_dim / flops_per_s
        self._prefill_pair_s = pair_s / 2  # the feature counts prefill pairs twice
        self._decode_token_s = max(pair_s, self._kv_token_s)
        self._overhead_s = step_overhead_s
        self._host_ns = seconds_to_ns(host_s)

    def step_ns(self, step: StepFeatures) -> StepTime:
        decode_s = self._decode_token_s * step.num_decode_context_tokens
        return StepTime(round((self._fixed_s(step) + decode_s) * NS_PER_S) or 1, self._host_ns)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        grown = first.num_decode_rows * np.arange(num_steps, dtype=np.int64)
        decode_s = self._decode_token_s * (first.num_decode_context_tokens + grown)
        device_s = self._fixed_s(first) + decode_s
        device_ns = np.maximum(np.rint(device_s * NS_PER_S).astype(np.int64), 1)
        return device_ns, np.full(num_steps, self._host_ns, dtype=np.int64)

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        """Nothing to do: the times depend on the features alone."""

    def _fixed_s(self, step: StepFeatures) -> float:
        """The time of all but the decode rows' attention, the only part that grows in a run."""
        num_tokens = step.num_prefill_tokens + step.num_decode_rows
        num_logit_rows = step.num_prefill_rows + step.num_decode_rows
        num_prefill_context = step.num_context_tokens - step.num_decode_context_tokens
        return (
            self._overhead_s
            + max(self._matrix_read_s, self._matrix_token_s * num_tokens)
            + max(
                self._kv_token_s * num_prefill_context,
                self._prefill_pair_s * step.prefill_attention,
            )
            + max(self._head_read_s, self._head_row_s * num_logit_rows)
            + self._kv_token_s * num_tokens
        )
