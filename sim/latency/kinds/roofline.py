"""Step time from the shapes of the model and the peaks of the accelerator.

Every part of a step takes as long as its arithmetic or its memory traffic, whichever is longer.
Formulas: docs/explanation/latency.md.
"""

from typing import TYPE_CHECKING

import numpy as np
from mypy_extensions import mypyc_attr

from sim.core.arrays import Int64, whole_ns
from sim.core.units import NS_PER_S, seconds_to_ns
from sim.latency.features import StepFeatures
from sim.latency.hardware import Hardware, NumberFormat
from sim.latency.model import StepTime, equal_ns
from sim.latency.shapes import Attention, Experts, ModelShape

if TYPE_CHECKING:
    from sim.latency.config import RooflineLatencyConfig

# More keys than any row has: a limit that limits nothing.
_ALL = 1 << 40
# All-reduces of a layer, and sends from stage to stage, of 16 bits for each unit of width.
_REDUCES, _SENT_BYTES = 2, 2


class _Attention:
    """Equal attention of several layers, on each of `tp` GPUs."""

    def __init__(
        self, attention: Attention, num: int, kv_bytes: int, peaks: tuple[float, float], tp: int
    ) -> None:
        """Take `num` layers that keep `kv_bytes` of a token; peaks: flops/s and bytes/s."""
        flops_per_s, bytes_per_s = peaks
        self.window = attention.window or _ALL
        self.num_keys = min(self.window, attention.top_keys or _ALL)
        self.kv_token_s = kv_bytes / bytes_per_s
        # The feature counts prefill pairs twice.
        self.prefill_pair_s = num * attention.pair_flops / flops_per_s / 2 / tp
        self.decode_pair_s = num * attention.decode_pair_flops / flops_per_s / tp
        index_bytes = num * attention.index_bytes
        self.decode_read_s = (kv_bytes - index_bytes) / bytes_per_s
        self.decode_token_s = max(self.decode_pair_s, self.decode_read_s)
        # Of all earlier tokens, whether or not they are selected. Every GPU has the whole index.
        self.index_pair_s = num * attention.index_pair_flops / flops_per_s
        self.index_token_s = max(self.index_pair_s, index_bytes / bytes_per_s)
        self.state_token_s = num * attention.state_token_flops / flops_per_s / tp
        # Read and written.
        self.state_row_s = 2 * num * attention.state_bytes / bytes_per_s / tp


@mypyc_attr(allow_interpreted_subclasses=True)
class RooflineLatency:
    """A lower bound of a step's device time, plus constant overheads."""

    def __init__(
        self,
        model: ModelShape,
        hardware: Hardware,
        config: "RooflineLatencyConfig",
        num_drafts: int = 0,
    ) -> None:
        mfu: float = config.mfu
        tp: int = config.tp
        bytes_per_s = hardware.peak_bytes_per_s * config.bandwidth_efficiency
        self._matrices = [
            (
                num_bytes / bytes_per_s / tp,
                2 * num_parameters / (hardware.flops_per_s(stored_as.arithmetic) * mfu) / tp,
            )
            for stored_as, (num_bytes, num_parameters) in _matrices(model).items()
        ]
        self._experts: list[tuple[Experts, float, float]] = []
        for experts, num_layers in _num_layers_by_experts(model).items():
            matrices = experts.matrices
            read_s = num_layers * matrices.num_bytes(model.dtype_bytes) / bytes_per_s / tp
            expert_flops = 2 * (num_layers * matrices.num_parameters) * experts.num_active
            token_s = expert_flops / (hardware.flops_per_s(matrices.format.arithmetic) * mfu) / tp
            self._experts.append((experts, read_s, token_s))
        head_flops_per_s = hardware.flops_per_s(model.head.format.arithmetic) * mfu
        self._head_read_s = model.head.num_bytes(model.dtype_bytes) / bytes_per_s / tp
        self._head_row_s = 2 * model.head.num_parameters / head_flops_per_s / tp
        peaks = hardware.peak_flops_per_s * mfu, bytes_per_s
        self._attention = []
        for attention, num_layers in _num_layers_by_attention(model).items():
            kv_bytes = num_layers * attention.kv_bytes(model.kv_element_bytes, tp)
            self._attention.append(_Attention(attention, num_layers, kv_bytes, peaks, tp))
        self._kv_token_s = model.kv_bytes_on_gpu(tp) / bytes_per_s
        # Each GPU sends and receives all but its own share, once to sum and once to spread.
        reduced = 2 * (tp - 1) / tp * _SENT_BYTES * model.hidden_size
        passed_on = (config.pp - 1) * _SENT_BYTES * model.hidden_size
        sent = _REDUCES * model.num_layers * reduced + passed_on
        self._send_token_s = sent / hardware.link_bytes_per_s
        self._overhead_s: float = config.step_overhead_s
        # All passes that draft the tokens of a step.
        self._drafting_share = num_drafts * (config.drafter_share or 0.0)
        self._host_ns = seconds_to_ns(config.host_s)
        self.depends_on_step_alone = True

    def step_ns(self, step: StepFeatures) -> StepTime:
        if step.num_draft_tokens:
            return self._verify_step(step)
        rows, context = step.num_decode_rows, step.num_decode_context_tokens
        decode_s = 0.0
        for part in self._attention:
            decode_s += part.decode_token_s * min(context, rows * part.num_keys)
            decode_s += part.index_token_s * context
        return StepTime(round((self._fixed_s(step) + decode_s) * NS_PER_S) or 1, self._host_ns)

    def _verify_step(self, step: StepFeatures) -> StepTime:
        """A step that verifies draft tokens, and the passes that draft the next ones.

        A decode row reads its context once for all of its tokens, and each of them attends to it.
        """
        rows, context = step.num_decode_rows, step.num_decode_context_tokens
        num_tokens = rows + step.num_draft_tokens
        per_row = num_tokens / rows
        decode_s = 0.0
        for part in self._attention:
            most = min(context, rows * part.num_keys)
            decode_s += max(part.decode_pair_s * per_row, part.decode_read_s) * most
            decode_s += max(part.index_pair_s * per_row, part.index_token_s) * context
        seconds = self._fixed_s(step) + decode_s
        if self._drafting_share:
            plain = self.step_ns(step.decode_rows_alone())
            seconds += self._drafting_share * plain.device_ns / NS_PER_S
        return StepTime(round(seconds * NS_PER_S) or 1, self._host_ns)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        rows = first.num_decode_rows
        contexts = first.num_decode_context_tokens + rows * np.arange(num_steps, dtype=np.int64)
        decode_s = np.zeros(num_steps)
        for part in self._attention:
            decode_s += part.decode_token_s * np.minimum(contexts, rows * part.num_keys)
            decode_s += part.index_token_s * contexts
        device_s = self._fixed_s(first) + decode_s
        device_ns = np.maximum(whole_ns(device_s * NS_PER_S), 1)
        return device_ns, equal_ns(self._host_ns, num_steps)

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        """Nothing to do: the times depend on the features alone."""

    def _fixed_s(self, step: StepFeatures) -> float:
        """The time of all but the decode rows' attention, the only part that grows in a run."""
        num_tokens = step.num_tokens
        num_rows = step.num_prefill_rows + step.num_decode_rows
        fixed_s = self._overhead_s
        for read_s, token_s in self._matrices:
            fixed_s += max(read_s, token_s * num_tokens)
        for experts, read_s, token_s in self._experts:
            fixed_s += max(read_s * experts.num_read(num_tokens), token_s * num_tokens)
        fixed_s += self._prefill_attention_s(step)
        fixed_s += self._head_s(num_rows + step.num_draft_tokens)
        fixed_s += self._kv_token_s * num_tokens
        for part in self._attention:
            fixed_s += max(part.state_row_s * num_rows, part.state_token_s * num_tokens)
        return fixed_s + self._send_token_s * num_tokens

    def _head_s(self, num_rows: int) -> float:
        return max(self._head_read_s, self._head_row_s * num_rows)

    def head_ns(self, step: StepFeatures) -> int:
        """The time of the output head alone, a part of the step's."""
        return round(self._head_s(step.num_prefill_rows + step.num_decode_rows) * NS_PER_S)

    def _prefill_attention_s(self, step: StepFeatures) -> float:
        num_tokens, num_rows = step.num_prefill_tokens, step.num_prefill_rows
        num_context = step.num_context_tokens - step.num_decode_context_tokens
        prefill_s = 0.0
        for part in self._attention:
            num_read = min(num_context, num_rows * part.window + num_tokens)
            pairs = min(step.prefill_attention, 2 * num_tokens * part.num_keys)
            prefill_s += max(part.kv_token_s * num_read, part.prefill_pair_s * pairs)
            prefill_s += part.index_pair_s / 2 * step.prefill_attention
        return prefill_s


def _matrices(shape: ModelShape) -> dict[NumberFormat, tuple[int, int]]:
    """Bytes and parameters of what every token is multiplied with, by number format."""
    sums: dict[NumberFormat, tuple[int, int]] = {}
    for layer in shape.layers:
        for part in layer.matrices:
            num_bytes, num_parameters = sums.get(part.format, (0, 0))
            num_bytes += layer.count * part.num_bytes(shape.dtype_bytes)
            sums[part.format] = num_bytes, num_parameters + layer.count * part.num_parameters
    return sums


def _num_layers_by_experts(shape: ModelShape) -> dict[Experts, int]:
    counts: dict[Experts, int] = {}
    for layer in shape.layers:
        if layer.experts is not None:
            counts[layer.experts] = counts.get(layer.experts, 0) + layer.count
    return counts


def _num_layers_by_attention(shape: ModelShape) -> dict[Attention, int]:
    counts: dict[Attention, int] = {}
    for layer in shape.layers:
        counts[layer.attention] = counts.get(layer.attention, 0) + layer.count
    return counts
