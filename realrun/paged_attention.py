"""The attention function through which models of transformers use paged attention.

It is registered in transformers under its own name. No mask function is registered under that
name, so transformers builds no mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from transformers import AttentionInterface

from realrun.attention.backend import StepAttention
from realrun.plan_tensors import PlanTensors

ATTENTION_NAME = "servetwin_paged"


class HasLayerIndex(Protocol):
    """An attention module of transformers."""

    layer_idx: int


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


def paged_attention(
    module: HasLayerIndex,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _attention_mask: None,
    *,
    scaling: float,
    paged: PagedPass,
    **_unused: object,
) -> tuple[Tensor, None]:
    """Write the new K and V into their pages, then attend. Transformers defines the signature.

    Args:
        module: the layer's attention module, which has the layer's index.
        query: [1, num_heads, num_tokens, head_dim].
        key: [1, num_kv_heads, num_tokens, head_dim].
        value: shape as `key`.
        _attention_mask: None.
        scaling: factor of the products of queries and keys.
        paged: the data of this forward pass.

    Returns:
        [1, num_tokens, num_heads, head_dim], and no attention weights.
    """
    kv = paged.kv_layers[module.layer_idx]
    rows = kv.view(-1, *kv.shape[-2:])
    rows.index_copy_(0, paged.inputs.key_rows, key[0].transpose(0, 1))
    rows.index_copy_(0, paged.inputs.value_rows, value[0].transpose(0, 1))
    queries = _rescaled(query[0].transpose(0, 1), scaling)
    return paged.attention.run(module.layer_idx, queries, kv, paged.inputs).unsqueeze(0), None


def register_paged_attention() -> None:
    """Register the attention function in transformers. Calling this again has no effect."""
    AttentionInterface.register(ATTENTION_NAME, paged_attention)


def _rescaled(query: Tensor, scaling: float) -> Tensor:
    """Multiply the query by `scaling * sqrt(head_dim)`: backends scale by 1 / sqrt(head_dim)."""
    factor = scaling * query.shape[-1] ** 0.5
    return query if abs(factor - 1) < 1e-6 else query * factor
