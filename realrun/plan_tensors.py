"""A batch plan on the device: what the model's forward pass reads of it, moved in one copy."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from realrun.batch_plan import BatchPlan, Int64s


@dataclass(frozen=True, slots=True, eq=False)
class PlanTensors:
    """Views of one int64 tensor on the device. Make them with `plan_tensors` or `unpack_plan`.

    A KV tensor of a layer, [num_pages + 1, 2, page_size, heads, head_dim], viewed as
    [rows, heads, head_dim], has one row a token for K and one for V.

    Attributes:
        packed: int64 [3 * num_tokens + num_samples], all of the below.
        positions: int64 [num_tokens].
        key_rows: int64 [num_tokens], the row where each new token's K goes.
        value_rows: int64 [num_tokens], the row where its V goes.
        sample_tokens: int64 [num_samples].
    """

    packed: Tensor
    positions: Tensor
    key_rows: Tensor
    value_rows: Tensor
    sample_tokens: Tensor


def plan_tensors(plan: BatchPlan, device: torch.device) -> PlanTensors:
    """Move a plan to the device; on CUDA the copy is enqueued, not waited for."""
    packed = pack_plan(plan, pinned=device.type == "cuda")
    return unpack_plan(packed.to(device, non_blocking=True), plan.num_tokens)


def pack_plan(plan: BatchPlan, *, pinned: bool) -> Tensor:
    """A plan's numbers in one host tensor, laid out as `PlanTensors.packed`.

    A fresh pinned tensor each time: torch hands its memory out again only after the copies that
    read it have run, so a plan may be packed while the last one's copy still waits.
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
    """The views of a packed plan; a graph keeps one and overwrites `packed` in place."""
    return PlanTensors(
        packed=packed,
        positions=packed[:num_tokens],
        key_rows=packed[num_tokens : 2 * num_tokens],
        value_rows=packed[2 * num_tokens : 3 * num_tokens],
        sample_tokens=packed[3 * num_tokens :],
    )


def key_rows_of(slots: Int64s, page_size: int) -> Int64s:
    """Rows of K of token slots (page id * page_size + offset); V lies page_size rows further."""
    return slots + slots // page_size * page_size
