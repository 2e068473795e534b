"""A batch plan on the device: the parts that a forward pass reads, copied in one transfer."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from realrun.batches.batch_plan import BatchPlan
from sim.core.arrays import Int64


@dataclass(frozen=True, slots=True, eq=False)
class PlanTensors:
    """Views of one int64 tensor on the device. Made by `plan_tensors` or `unpack_plan`.

    The KV tensor of a layer, [num_pages + 1, 2, page_size, heads, head_dim], is also viewed as
    [rows, heads, head_dim]. In this view each token has one row for K and one for V.

    Attributes:
        packed: int64 [3 * num_tokens + num_samples], the four tensors below, in this order.
        positions: int64 [num_tokens], as in BatchPlan.
        key_rows: int64 [num_tokens], the row for each new token's K.
        value_rows: int64 [num_tokens], the row for each new token's V.
        sample_tokens: int64 [num_samples], as in BatchPlan.
    """

    packed: Tensor
    positions: Tensor
    key_rows: Tensor
    value_rows: Tensor
    sample_tokens: Tensor


def plan_tensors(plan: BatchPlan, device: torch.device) -> PlanTensors:
    """Copy a plan to the device. On CUDA this only enqueues the copy."""
    packed = pack_plan(plan, pinned=device.type == "cuda")
    return unpack_plan(packed.to(device, non_blocking=True), plan.num_tokens)


def pack_plan(plan: BatchPlan, *, pinned: bool) -> Tensor:
    """A plan in one host tensor, laid out as `PlanTensors.packed`.

    The tensor is new in each call, so a plan may be packed while the copy of the plan before still
    waits: torch reuses pinned memory only after the copies from it have run.
    """
    num_tokens = plan.num_tokens
    size = 3 * num_tokens + len(plan.sample_tokens)
    packed = torch.empty(size, dtype=torch.int64, device="cpu", pin_memory=pinned)
    numbers = packed.numpy()
    key_rows = key_rows_of(plan.write_slots, plan.page_size)
    numbers[:num_tokens] = plan.positions
    numbers[num_tokens : 2 * num_tokens] = key_rows
    np.add(key_rows, plan.page_size, out=numbers[2 * num_tokens : 3 * num_tokens])
    numbers[3 * num_tokens :] = plan.sample_tokens
    return packed


def unpack_plan(packed: Tensor, num_tokens: int) -> PlanTensors:
    """The views of a packed plan. A CUDA graph keeps them, and `packed` is overwritten."""
    return PlanTensors(
        packed=packed,
        positions=packed[:num_tokens],
        key_rows=packed[num_tokens : 2 * num_tokens],
        value_rows=packed[2 * num_tokens : 3 * num_tokens],
        sample_tokens=packed[3 * num_tokens :],
    )


def key_rows_of(slots: Int64, page_size: int) -> Int64:
    """The K rows of token slots (page id * page_size + offset). V is `page_size` rows later."""
    return slots + slots // page_size * page_size
