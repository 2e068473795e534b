"""Paged attention in plain torch, for any device: gather the pages, then attend."""

from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from realrun.batch_plan import BatchPlan
from realrun.plan_tensors import PlanTensors, key_rows_of


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Rows of one query length, padded to the longest of them.

    Attributes:
        tokens: int64 [num_rows, query_len], their new tokens within the batch.
        key_rows: int64 [num_rows, kv_len], rows of K in a layer's KV tensor.
        value_rows: int64 [num_rows, kv_len], rows of V.
        mask: bool [num_rows, 1, query_len, kv_len], what each new token attends to.
    """

    tokens: Tensor
    key_rows: Tensor
    value_rows: Tensor
    mask: Tensor


class ReferenceAttention:
    """An `AttentionBackend` without kernels of its own.

    Rows are padded together when they have as many new tokens and about as many to attend to:
    few calls for a batch of decodes, and less than half of the work on padding.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._groups: list[_Group] = []

    def plan(self, plan: BatchPlan) -> None:
        """Group the rows, and find where their K and V lie."""
        sizes = list(zip(plan.query_lens.tolist(), _doublings(plan), strict=True))
        order = sorted(range(plan.num_rows), key=sizes.__getitem__)
        self._groups = [
            _group(plan, np.array(list(rows)), self._device)
            for _, rows in groupby(order, key=sizes.__getitem__)
        ]

    def run(self, layer: int, query: Tensor, kv: Tensor, inputs: PlanTensors) -> Tensor:
        """Attend group by group."""
        rows = kv.view(-1, *kv.shape[-2:])
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        for group in self._groups:
            output[group.tokens] = _attend(group, query[group.tokens], rows)
        return output


def _doublings(plan: BatchPlan) -> list[int]:
    """How often each row's KV length doubles from 1, rounded up."""
    return [(length - 1).bit_length() for length in plan.kv_lens.tolist()]


def _group(plan: BatchPlan, rows: np.ndarray, device: torch.device) -> _Group:
    query_len = int(plan.query_lens[rows[0]])
    kv_lens = plan.kv_lens[rows].astype(np.int64)[:, None]
    tokens = plan.qo_indptr[rows][:, None] + np.arange(query_len)
    # Past its end a row repeats its last token, which the mask hides.
    positions = np.minimum(np.arange(kv_lens.max()), kv_lens - 1)
    pages = plan.kv_indices[plan.kv_indptr[rows][:, None] + positions // plan.page_size]
    slots = pages.astype(np.int64) * plan.page_size + positions % plan.page_size
    key_rows = torch.from_numpy(key_rows_of(slots, plan.page_size)).to(device)
    query_positions = torch.from_numpy(plan.positions[tokens]).to(device)
    attended = torch.arange(key_rows.shape[1], device=device)
    return _Group(
        tokens=torch.from_numpy(tokens.astype(np.int64)).to(device),
        key_rows=key_rows,
        value_rows=key_rows + plan.page_size,
        mask=(attended <= query_positions[:, :, None])[:, None],
    )


def _attend(group: _Group, query: Tensor, kv_rows: Tensor) -> Tensor:
    """[num_rows, query_len, num_heads, head_dim], of the same query.

    Query heads that share a KV head go along the query axis, so that K and V need no copies.
    """
    num_rows, query_len, num_heads, head_dim = query.shape
    keys = kv_rows[group.key_rows].transpose(1, 2)
    values = kv_rows[group.value_rows].transpose(1, 2)
    num_kv_heads = keys.shape[1]
    heads_a_group = num_heads // num_kv_heads
    queries = query.transpose(1, 2).reshape(num_rows, num_kv_heads, -1, head_dim)
    mask = group.mask.repeat(1, 1, heads_a_group, 1)
    attended = scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    return attended.reshape(num_rows, num_heads, query_len, head_dim).transpose(1, 2)
