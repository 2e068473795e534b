"""Attention of one layer: writes the new tokens' K and V into their pages, then attends."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from realrun.attention.backend import StepAttention
from realrun.batches.plan_tensors import PlanTensors


@dataclass(frozen=True, slots=True, eq=False)
class PagedPass:
    """What one forward pass gives to its attention layers.

    Attributes:
        inputs: the batch plan on the device.
        attention: attention, planned for the same batch.
        kv_layers: for each layer, its tensor of KV pages.
    """

    inputs: PlanTensors
    attention: StepAttention
    kv_layers: Sequence[Tensor]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend in a layer; returns [num_tokens, num_heads * head_dim].

        Args:
            layer: index of the layer.
            query: [num_tokens, num_heads, head_dim], after rotary embedding if the model has it.
            key: [num_tokens, num_kv_heads, head_dim], the same.
            value: [num_tokens, num_kv_heads, head_dim].
        """
        kv = self.kv_layers[layer]
        rows = kv.view(-1, *kv.shape[-2:])
        rows.index_copy_(0, self.inputs.key_rows, key)
        rows.index_copy_(0, self.inputs.value_rows, value)
        return self.attention.run(layer, query, kv, self.inputs).flatten(1)


def query_factor(scaling: float, head_dim: int) -> float:
    """Factor of queries for a model's own scaling, as backends scale by 1 / sqrt(head_dim)."""
    factor = scaling * float(head_dim) ** 0.5
    return 1.0 if abs(factor - 1) < 1e-6 else factor
