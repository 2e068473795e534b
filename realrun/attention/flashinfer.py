"""Paged attention through FlashInfer's kernels: prefill, mixed and decode batches on a GPU.

A plan cuts the batch into work for the device's thread blocks: host work that ends in a copy from
a pinned buffer of the wrapper to the device, enqueued and not waited for. `plan` and `run` have to
be called with the same stream current.

Planning step k + 1 must not change what step k still needs:

* On the device nothing can go wrong, because everything is on one stream: the copies of plan k + 1
  (work lists, page ids) run after the kernels of step k, and memory that a plan gives back to
  torch's allocator is handed out again in the stream's order. This is why all wrappers can share
  one workspace for partial results, which live within one call.
* On the host a pinned buffer may be written again only when the copy that reads it has run. Each
  pinned buffer therefore has a mark, recorded behind the copies of its plan and waited for before
  the next plan into it. `FlashInferAttention` has two sets of wrappers and uses them in turn, so
  the mark that plan k + 1 waits for is that of plan k - 1, behind which only step k - 1 was
  enqueued: a loop that takes in the result of step k - 1 before it plans step k + 1 never waits.
"""

from typing import Literal

import torch
from torch import Tensor

from realrun.attention.flashinfer_shape import AttentionShape, attention_shape, workspace_bytes
from realrun.attention.flashinfer_wrappers import (
    FlashInferWrappers,
    PagedWrapper,
    PlannedWrapper,
    PrefillKernel,
    Wrappers,
    plan_decode,
    plan_prefill,
)
from realrun.batch_plan import BatchPlan
from realrun.kv_tensors import KVTensors
from realrun.model import PagedModel
from sim.core.errors import InputError

PrefillBackend = Literal["auto", "fa2", "fa3"]

_FA3_MIN_TOKENS_A_ROW = 128
_HOPPER = 9


def choose_prefill_kernel(plan: BatchPlan) -> PrefillKernel:
    """The kernel that `auto` takes for a batch on a GPU that has both.

    fa3 for new prompts: rows of 128 new tokens or more on average, which are at least half of all
    that the rows attend to; fa2 for everything else. The reasons are in how the two plan: fa3 is
    the quicker multiplier, but gives each query head tiles of 128 or 192 tokens, which short rows
    leave empty, and never cuts a row's context up, which leaves a small chunk over a long context
    to a few SMs; it also reads K and V once for each query head instead of once for a group.
    The two bounds are a rule of thumb, not measured.
    """
    num_context_tokens = int(plan.kv_lens.sum())
    is_long = plan.num_tokens >= _FA3_MIN_TOKENS_A_ROW * plan.num_rows
    is_new = 2 * plan.num_tokens >= num_context_tokens
    return "fa3" if is_long and is_new else "fa2"


class _WrapperSet:
    """One wrapper of each kind, and the mark behind the copies of the last plan."""

    def __init__(self, shape: AttentionShape, wrappers: Wrappers, workspace: Tensor) -> None:
        self._shape = shape
        self._decode = wrappers.decode(workspace, use_tensor_cores=shape.decode_uses_tensor_cores)
        self._prefills: dict[PrefillKernel, PagedWrapper] = {
            "fa2": wrappers.prefill(workspace, "fa2"),
            "fa3": wrappers.prefill(workspace, "fa3"),
        }
        self._mark = wrappers.mark()

    def plan_decode(self, plan: BatchPlan) -> PlannedWrapper:
        self._mark.synchronize()
        plan_decode(self._decode, plan, self._shape)
        self._mark.record()
        return PlannedWrapper(self._decode)

    def plan_prefill(self, plan: BatchPlan, kernel: PrefillKernel) -> PlannedWrapper:
        self._mark.synchronize()
        plan_prefill(self._prefills[kernel], plan, self._shape)
        self._mark.record()
        return PlannedWrapper(self._prefills[kernel])


class FlashInferAttention:
    """The `AttentionBackend` of a GPU for batches of any kind.

    Rows of one new token each go through the decode kernel; any other batch, decode rows
    included, through one prefill call.
    """

    def __init__(
        self,
        model: PagedModel,
        kv: KVTensors,
        *,
        prefill_backend: PrefillBackend = "auto",
        wrappers: Wrappers | None = None,
    ) -> None:
        """Make the wrappers.

        Args:
            model: the model it serves.
            kv: its pages.
            prefill_backend: the kernel of prefill and mixed batches; `auto` chooses for each
                batch, see `choose_prefill_kernel`.
            wrappers: makes the wrappers, FlashInfer's own by default.

        Raises:
            InputError: FlashInfer does not serve this device, dtype or head width.
        """
        shape = attention_shape(model, kv)
        wrappers = wrappers or FlashInferWrappers(shape)
        self._prefill_backend = _resolve(prefill_backend, shape.device)
        workspace = wrappers.workspace(workspace_bytes(shape, num_sms=wrappers.num_sms()))
        self._sets = [_WrapperSet(shape, wrappers, workspace) for _ in range(2)]
        self._turn = 0

    @torch.inference_mode()
    def plan(self, plan: BatchPlan) -> PlannedWrapper:
        """Plan with the set of wrappers that the last plan did not use.

        What it returns has to run before the next plan but one; on a GPU, running only enqueues.
        """
        self._turn = 1 - self._turn
        wrappers = self._sets[self._turn]
        if plan.num_tokens == plan.num_rows:
            return wrappers.plan_decode(plan)
        kernel = self._prefill_backend
        if kernel == "auto":
            kernel = choose_prefill_kernel(plan)
        return wrappers.plan_prefill(plan, kernel)


class GraphDecodeAttention:
    """An `AttentionBackend` for a captured decode pass with a fixed number of rows.

    Captured kernels read their plan at fixed addresses, so there is one wrapper a size instead of
    two. A plan waits for the mark of the last plan of the same size. Were that for step k, with
    step k - 1 known to be over, the wait is for a copy that is next in the queue.
    """

    def __init__(
        self,
        shape: AttentionShape,
        num_rows: int,
        *,
        wrappers: Wrappers,
        workspace: Tensor,
        indices: Tensor,
    ) -> None:
        """Make the wrapper.

        Args:
            shape: heads and pages.
            num_rows: rows of every plan.
            wrappers: makes it.
            workspace: for partial results; may be shared with other wrappers of one stream.
            indices: int32 buffer for the page ids of a plan; may be shared in the same way.
        """
        self._shape = shape
        self._wrapper = wrappers.graph_decode(
            workspace, indices, num_rows, use_tensor_cores=shape.decode_uses_tensor_cores
        )
        self._mark = wrappers.mark()

    @torch.inference_mode()
    def plan(self, plan: BatchPlan) -> PlannedWrapper:
        """Plan the next replay. Not to be called while a graph is captured.

        What it returns attends as planned last; once captured, as planned last before the replay.
        """
        self._mark.synchronize()
        plan_decode(self._wrapper, plan, self._shape)
        self._mark.record()
        return PlannedWrapper(self._wrapper)


def _resolve(prefill_backend: PrefillBackend, device: torch.device) -> PrefillBackend:
    """fa3 kernels are for Hopper alone."""
    if device.type != "cuda":
        return prefill_backend
    is_hopper = torch.cuda.get_device_capability(device)[0] == _HOPPER
    if prefill_backend == "fa3" and not is_hopper:
        raise InputError("attention flashinfer: fa3 needs a Hopper GPU")
    return prefill_backend if is_hopper else "fa2"
