"""How transformers' models reach paged attention: an attention function under a name of ours.

No mask function is registered under that name, so transformers builds no mask.
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
    """What the attention modules of transformers have in common here."""

    layer_idx: int


@dataclass(frozen=True, slots=True, eq=False)
class PagedPass:
    """What one forward pass hands down to its attention layers.

    Attributes:
        inputs: the batch plan on the device.
        attention: planned for the same batch.
        kv_layers: a tensor of pages for each layer.
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
    """Write the new K and V into their pages, then attend; in the form transformers calls.

    Args:
        module: the layer's attention, which knows its index.
        query: [1, num_heads, num_tokens, head_dim].
        key: [1, num_kv_heads, num_tokens, head_dim].
        value: as `key`.
        _attention_mask: transformers builds none.
        scaling: factor of the products of queries and keys.
        paged: the forward pass this belongs to.

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
    """Make the attention function known to transformers. Doing it twice changes nothing."""
    AttentionInterface.register(ATTENTION_NAME, paged_attention)


def _rescaled(query: Tensor, scaling: float) -> Tensor:
    """Backends scale by 1 / sqrt(head_dim); whatever else a model asks for goes into the query."""
    factor = scaling * query.shape[-1] ** 0.5
    return query if abs(factor - 1) < 1e-6 else query * factor
