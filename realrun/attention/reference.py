"""Paged attention in plain torch, for any device: gathers K and V from pages, then attends."""

from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from realrun.batches.batch_plan import BatchPlan
from realrun.batches.plan_tensors import PlanTensors, key_rows_of
from sim.core.arrays import Int64


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Rows with the same number of new tokens; their contexts are padded to the same length.

    Attributes:
        tokens: int64 [num_rows, query_len], indices of the rows' new tokens in the batch.
        key_rows: int64 [num_rows * kv_len], the rows of K in a layer's KV tensor.
        value_rows: int64 [num_rows * kv_len], the rows of V.
        mask: bool [num_rows, 1, heads_per_kv_head * query_len, kv_len], true where a query attends
            to a token.
    """

    tokens: Tensor
    key_rows: Tensor
    value_rows: Tensor
    mask: Tensor


class _ReferenceStep:
    """A `StepAttention` that attends group by group.

    The buffer `gathered`, [2, at least num_rows * kv_len of each group, num_kv_heads, head_dim],
    holds K and V of one group at a time. Steps share it, because they run one after the other.
    """

    def __init__(self, groups: list[_Group], gathered: Tensor) -> None:
        self._groups = groups
        self._gathered = gathered

    def run(self, layer: int, query: Tensor, kv: Tensor, inputs: PlanTensors) -> Tensor:
        """Compute the attention of all groups."""
        kv_rows = kv.view(-1, *kv.shape[-2:])
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        for group in self._groups:
            output[group.tokens] = self._attend(group, query[group.tokens], kv_rows)
        return output

    def _attend(self, group: _Group, query: Tensor, kv_rows: Tensor) -> Tensor:
        """The attention of one group; query and result: [num_rows, query_len, num_heads, head_dim].

        Query heads that share a KV head are placed along the query axis, so K and V need not be
        copied for each of them.
        """
        num_rows, query_len, num_heads, head_dim = query.shape
        keys = self._gather(0, kv_rows, group.key_rows, num_rows)
        values = self._gather(1, kv_rows, group.value_rows, num_rows)
        queries = query.transpose(1, 2).reshape(num_rows, keys.shape[1], -1, head_dim)
        attended = scaled_dot_product_attention(queries, keys, values, attn_mask=group.mask)
        return attended.reshape(num_rows, num_heads, query_len, head_dim).transpose(1, 2)

    def _gather(self, k_or_v: int, kv_rows: Tensor, indices: Tensor, num_rows: int) -> Tensor:
        """K (0) or V (1) of a group; [num_rows, num_kv_heads, kv_len, head_dim]."""
        gathered = self._gathered[k_or_v, : len(indices)]
        torch.index_select(kv_rows, 0, indices, out=gathered)
        return gathered.view(num_rows, -1, *kv_rows.shape[1:]).transpose(1, 2)


class ReferenceAttention:
    """An `AttentionBackend` that uses only functions of torch.

    Rows form a group if they have the same number of new tokens and contexts of similar length,
    and a group is padded to its longest context. So a batch of decode rows needs few calls, and
    less than half of the work is padding.
    """

    def __init__(self, kv_layer: Tensor, num_heads: int) -> None:
        """`kv_layer` is a layer's KV tensor, [num_pages + 1, 2, page_size, num_kv_heads, head_dim].

        All layers have the same shape.
        """
        self._heads_per_kv_head = num_heads // kv_layer.shape[-2]
        # The buffer for K and V of a group. It is reused, because on a CPU new memory takes longer
        # than the copy.
        self._gathered = kv_layer.new_empty((2, 0, *kv_layer.shape[-2:]))

    def plan(self, plan: BatchPlan) -> _ReferenceStep:
        """Group the rows, and find the rows of their K and V."""
        # Contexts of one group differ by less than a factor of 2: 9 to 16 tokens, 17 to 32, ...
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

    def _group(self, plan: BatchPlan, rows: Int64) -> _Group:
        device = self._gathered.device
        query_len = int(plan.query_lens[rows[0]])
        kv_lens = plan.kv_lens[rows].astype(np.int64)[:, None]
        tokens = plan.qo_indptr[rows].astype(np.int64)[:, None] + np.arange(query_len)
        # A row is padded by repeating its last token; the mask hides the repetitions.
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
