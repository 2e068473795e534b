"""Paged attention in plain torch, for any device: gather the pages, then attend."""

from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from realrun.batch_plan import BatchPlan, Int64s
from realrun.plan_tensors import PlanTensors, key_rows_of


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Rows with as many new tokens each, padded to as many tokens attended to.

    Attributes:
        tokens: int64 [num_rows, query_len], their new tokens within the batch.
        key_rows: int64 [num_rows * kv_len], rows of K in a layer's KV tensor.
        value_rows: int64 [num_rows * kv_len], rows of V.
        mask: bool [num_rows, 1, heads_per_kv_head * query_len, kv_len], what is attended to.
    """

    tokens: Tensor
    key_rows: Tensor
    value_rows: Tensor
    mask: Tensor


class _ReferenceStep:
    """A `StepAttention`.

    `gathered`, [2, at least num_rows * kv_len of each group, num_kv_heads, head_dim], takes K and
    V of one group. Other steps write there too: steps run one after the other.
    """

    def __init__(self, groups: list[_Group], gathered: Tensor) -> None:
        self._groups = groups
        self._gathered = gathered

    def run(self, layer: int, query: Tensor, kv: Tensor, inputs: PlanTensors) -> Tensor:
        """Attend group by group."""
        kv_rows = kv.view(-1, *kv.shape[-2:])
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        for group in self._groups:
            output[group.tokens] = self._attend(group, query[group.tokens], kv_rows)
        return output

    def _attend(self, group: _Group, query: Tensor, kv_rows: Tensor) -> Tensor:
        """[num_rows, query_len, num_heads, head_dim], of a query of the same shape.

        Query heads that share a KV head go along the query axis: K and V need no copies for them.
        """
        num_rows, query_len, num_heads, head_dim = query.shape
        keys = self._gather(0, kv_rows, group.key_rows, num_rows)
        values = self._gather(1, kv_rows, group.value_rows, num_rows)
        queries = query.transpose(1, 2).reshape(num_rows, keys.shape[1], -1, head_dim)
        attended = scaled_dot_product_attention(queries, keys, values, attn_mask=group.mask)
        return attended.reshape(num_rows, num_heads, query_len, head_dim).transpose(1, 2)

    def _gather(self, k_or_v: int, kv_rows: Tensor, indices: Tensor, num_rows: int) -> Tensor:
        """[num_rows, num_kv_heads, kv_len, head_dim]."""
        gathered = self._gathered[k_or_v, : len(indices)]
        torch.index_select(kv_rows, 0, indices, out=gathered)
        return gathered.view(num_rows, -1, *kv_rows.shape[1:]).transpose(1, 2)


class ReferenceAttention:
    """An `AttentionBackend` without kernels of its own.

    Rows are padded together when they have as many new tokens and about as many to attend to:
    few calls for a batch of decodes, and less than half of the work on padding.
    """

    def __init__(self, kv_layer: Tensor, num_heads: int) -> None:
        """Serve layers like `kv_layer`, [num_pages + 1, 2, page_size, num_kv_heads, head_dim]."""
        self._heads_per_kv_head = num_heads // kv_layer.shape[-2]
        # K and V of a group, gathered. Kept: fresh memory costs a CPU more than the copy.
        self._gathered = kv_layer.new_empty((2, 0, *kv_layer.shape[-2:]))

    def plan(self, plan: BatchPlan) -> _ReferenceStep:
        """Group the rows, and find where their K and V lie."""
        # From one group to the next, the tokens attended to double.
        doublings = [(length - 1).bit_length() for length in plan.kv_lens.tolist()]
        sizes = list(zip(plan.query_lens.tolist(), doublings, strict=True))
        order = sorted(range(plan.num_rows), key=sizes.__getitem__)
        groups = [
            self._group(plan, np.array(list(rows))) for _, rows in groupby(order, sizes.__getitem__)
        ]
        num_gathered = max(len(group.key_rows) for group in groups)
        if num_gathered > self._gathered.shape[1]:
            shape = (2, num_gathered, *self._gathered.shape[2:])
            self._gathered = self._gathered.new_empty(shape)
        return _ReferenceStep(groups, self._gathered)

    def _group(self, plan: BatchPlan, rows: Int64s) -> _Group:
        device = self._gathered.device
        query_len = int(plan.query_lens[rows[0]])
        kv_lens = plan.kv_lens[rows].astype(np.int64)[:, None]
        tokens = plan.qo_indptr[rows].astype(np.int64)[:, None] + np.arange(query_len)
        # Past its end a row repeats its last token, which the mask hides.
        positions = np.minimum(np.arange(kv_lens.max()), kv_lens - 1)
        pages = plan.kv_indices[plan.kv_indptr[rows][:, None] + positions // plan.page_size]
        slots = pages.astype(np.int64) * plan.page_size + positions % plan.page_size
        key_rows = torch.from_numpy(key_rows_of(slots, plan.page_size)).to(device)
        query_positions = torch.from_numpy(plan.positions[tokens]).to(device)
        kv_positions = torch.arange(key_rows.shape[1], device=device)
        mask = (kv_positions <= query_positions[:, :, None])[:, None]
        return _Group(
            tokens=torch.from_numpy(tokens).to(device),
            key_rows=key_rows.view(-1),
            value_rows=key_rows.view(-1) + plan.page_size,
            mask=mask.repeat(1, 1, self._heads_per_kv_head, 1),
        )
