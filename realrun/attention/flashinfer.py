"""Paged attention with FlashInfer's kernels: prefill, mixed and decode batches on a GPU.

To plan is to divide a batch into work for the device's thread blocks. The host writes this work
into a pinned buffer of the wrapper and enqueues a copy to the device. `plan` and `run` must be
called with the same CUDA stream current.

Planning step k + 1 must not change data that step k still needs:

* On the device this holds because everything is on one stream: the copies of plan k + 1 (work
  lists, page ids) run after the kernels of step k, and torch's allocator reuses freed memory in
  the order of the stream. For the same reason all wrappers can share one workspace for partial
  results, which are needed only within one call.
* On the host, a pinned buffer may be overwritten only after the copy from it has run. So an event,
  called a mark, is recorded after the copies of a plan, and the next plan into the same buffer
  waits for it. `FlashInferAttention` uses two sets of wrappers in turn: plan k + 1 waits for the
  mark of plan k - 1. That mark has passed if the result of step k - 1 is known. A loop that
  processes the result of step k - 1 before it plans step k + 1 therefore never waits.
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
from realrun.batches.batch_plan import BatchPlan
from realrun.model.kv_tensors import KVTensors
from realrun.model.paged_model import PagedModel
from sim.core.errors import InputError

PrefillBackend = Literal["auto", "fa2", "fa3"]

# Measured on an H200 with Llama-3.1-8B; tests/realrun/test_prefill_kernel.py says how well they do.
_FA3_MIN_TOKENS = 160
_FA3_MIN_TOKENS_A_ROW = 64
_FA3_MAX_CONTEXT_A_TOKEN = 128
_HOPPER = 9


def choose_prefill_kernel(plan: BatchPlan) -> PrefillKernel:
    """The kernel that `auto` uses for a batch, on a GPU that has both kernels.

    fa3 is used for batches with at least 160 new tokens, and at least 64 a row in the mean, if
    their rows attend to at most 128 times as many tokens. Everything else uses fa2. The reasons:

    * fa3 multiplies faster than fa2.
    * fa3 gives each query head tiles of 128 or 192 tokens, and does not split a row's context. So a
      small chunk with a long context uses only a few SMs, and a decode row fills a tile of its own.
    * fa3 reads K and V once for each query head, fa2 once for each group of heads. So decode rows
      with long contexts, beside a small chunk, are slower with fa3.

    Both kernels were measured on an H200: at 325 compositions of up to 8 rows with Llama-3.1-8B,
    where this rule takes 0.4 % longer than the better kernel in the mean, and 40 % at most (fa2
    alone 7.6 % longer, fa3 alone 9.2 %); and at 54 of up to 512 rows with Qwen2.5-0.5B, where it
    takes 2.5 % longer in the mean, and 60 % at most (fa2 alone 13.5 %, fa3 alone 192 %).
    """
    num_context_tokens = int(plan.kv_lens.sum())
    is_large = plan.num_tokens >= max(_FA3_MIN_TOKENS, _FA3_MIN_TOKENS_A_ROW * plan.num_rows)
    is_short = num_context_tokens <= _FA3_MAX_CONTEXT_A_TOKEN * plan.num_tokens
    return "fa3" if is_large and is_short else "fa2"


class _WrapperSet:
    """One wrapper of each kind, and the mark after the copies of the last plan."""

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
    """The `AttentionBackend` of a GPU, for batches of any kind.

    If every row has one new token, the decode kernel runs the batch. Any other batch, its decode
    rows included, is one call of a prefill kernel.
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
            model: the model.
            kv: its KV tensors.
            prefill_backend: the kernel for prefill and mixed batches; `auto` chooses one for each
                batch, see `choose_prefill_kernel`.
            wrappers: makes the wrappers; None: those of the library.

        Raises:
            InputError: FlashInfer does not support this device, dtype or head width, or `fa3` is
                asked for on a GPU that is not a Hopper.
        """
        shape = attention_shape(model, kv)
        wrappers = wrappers or FlashInferWrappers(shape)
        self._prefill_backend = _resolve(prefill_backend, shape.device)
        workspace = wrappers.workspace(workspace_bytes(shape, num_sms=wrappers.num_sms()))
        self._sets = [_WrapperSet(shape, wrappers, workspace) for _ in range(2)]
        self._turn = 0

    @torch.inference_mode()
    def plan(self, plan: BatchPlan) -> PlannedWrapper:
        """Plan a step, with the set of wrappers that the last plan did not use.

        The result must run before the second plan from now, which uses the same set. On a GPU,
        running only enqueues work.
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
    """An `AttentionBackend` for a recorded decode pass with a fixed number of rows.

    Recorded kernels read their plan at fixed addresses, so there is only one wrapper for each
    number of rows, and a plan waits for the mark of the last plan of the same size. This wait is
    short: the host plans step k + 1 after step k - 1 has ended, so the copy of plan k, for which it
    waits, is next in the queue.
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
            shape: sizes of the heads and pages.
            num_rows: rows of every plan.
            wrappers: makes the wrapper.
            workspace: memory for partial results; wrappers on one stream may share it.
            indices: int32 buffer for the page ids of a plan; may be shared in the same way.
        """
        self._shape = shape
        self._wrapper = wrappers.graph_decode(
            workspace, indices, num_rows, use_tensor_cores=shape.decode_uses_tensor_cores
        )
        self._mark = wrappers.mark()

    @torch.inference_mode()
    def plan(self, plan: BatchPlan) -> PlannedWrapper:
        """Plan the next replay. Do not call this while a graph is captured.

        The result always uses the latest plan: after a capture, each replay uses the last plan
        before it.
        """
        self._mark.synchronize()
        plan_decode(self._wrapper, plan, self._shape, is_graph=True)
        self._mark.record()
        return PlannedWrapper(self._wrapper)


def _resolve(prefill_backend: PrefillBackend, device: torch.device) -> PrefillBackend:
    """The given backend on a Hopper GPU, and fa2 on other GPUs, which have no fa3 kernels."""
    if device.type != "cuda":
        return prefill_backend
    is_hopper = torch.cuda.get_device_capability(device)[0] == _HOPPER
    if prefill_backend == "fa3" and not is_hopper:
        raise InputError("attention flashinfer: fa3 needs a Hopper GPU")
    return prefill_backend if is_hopper else "fa2"
