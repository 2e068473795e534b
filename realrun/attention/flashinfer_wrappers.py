"""Makes and calls FlashInfer's wrapper objects, as of FlashInfer 0.6.14.

The rest of the package uses the library only through the protocols below, so tests can replace it.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from realrun.attention.flashinfer_shape import AttentionShape, flashinfer_problem
from realrun.batches.batch_plan import BatchPlan
from realrun.batches.plan_tensors import PlanTensors
from sim.core.errors import InputError

PrefillKernel = Literal["fa2", "fa3"]


class PagedWrapper(Protocol):
    """A wrapper object of the library: planned once for a batch, then run for every layer."""

    @property
    def plan(self) -> Callable[..., None]:
        """Takes the batch's offsets, page ids and last page lengths, then the sizes."""
        ...

    def run(self, q: Tensor, paged_kv_cache: Tensor, *, out: Tensor) -> Tensor: ...


class PlannedWrapper:
    """`StepAttention` with a wrapper that is planned for the step."""

    def __init__(self, wrapper: PagedWrapper) -> None:
        self._wrapper = wrapper

    def run(self, layer: int, query: Tensor, kv: Tensor, inputs: PlanTensors) -> Tensor:
        """Compute attention into a new contiguous tensor: kernels ignore strides of outputs."""
        out = torch.empty_like(query, memory_format=torch.contiguous_format)
        return self._wrapper.run(query, kv, out=out)


class QueueMark(Protocol):
    """An event in the device's stream, like `torch.cuda.Event`."""

    def record(self) -> None: ...
    def synchronize(self) -> None: ...


class Wrappers(Protocol):
    """Makes wrappers. Each wrapper has its own pinned buffer and device buffer for its plans."""

    def num_sms(self) -> int:
        """Streaming multiprocessors of the device."""
        ...

    def workspace(self, num_bytes: int) -> Tensor:
        """Zeros, uint8 [num_bytes], on the device; all wrappers on one stream may share it."""
        ...

    def decode(self, workspace: Tensor, *, use_tensor_cores: bool) -> PagedWrapper:
        """A wrapper for batches with one new token in each row."""
        ...

    def prefill(self, workspace: Tensor, kernel: PrefillKernel) -> PagedWrapper:
        """A wrapper for any batch."""
        ...

    def graph_decode(
        self, workspace: Tensor, indices: Tensor, num_rows: int, *, use_tensor_cores: bool
    ) -> PagedWrapper:
        """A decode wrapper that stores all its plans at the same addresses.

        Args:
            workspace: made by `workspace`.
            indices: int32 buffer on the device for the page ids of all rows; wrappers may share
                it.
            num_rows: rows of every plan.
            use_tensor_cores: whether to use the kernel for tensor cores.
        """
        ...

    def mark(self) -> QueueMark:
        """A new mark. Until it is recorded, waiting for it returns at once."""
        ...


class _GraphDecodeWrapper:
    """The library's decode wrapper for CUDA graphs, with plans that take the host little time.

    The library's own plan looks at every row in Python: 0.65 ms for 256 rows. It also copies page
    ids twice. Only the first plan, which chooses the kernels, is the library's. Later ones copy the
    batch's offsets and page ids into the wrapper's buffers, and call `fast_decode_plan`, which
    divides the work and nothing else.
    """

    def __init__(
        self,
        library: Any,
        workspace: Tensor,
        indices: Tensor,
        num_rows: int,
        *,
        use_tensor_cores: bool,
    ) -> None:
        # Offsets and last page lengths lie next to each other, so that one copy is enough.
        self._offsets = torch.zeros(2 * num_rows + 1, dtype=torch.int32, device=indices.device)
        self._indices = indices
        self._fast_plan: Callable[..., None] = library.fast_decode_plan
        self._is_planned = False
        self._wrapper: Any = library.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(
            workspace,
            self._offsets[: num_rows + 1],
            indices,
            self._offsets[num_rows + 1 :],
            "NHD",
            use_tensor_cores=use_tensor_cores,
        )

    def plan(
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        *sizes: int,
        **dtypes: torch.dtype,
    ) -> None:
        """Plan the next replay; `indices` may be on the host or on the device."""
        if not self._is_planned:
            ids = indices.to(self._indices.device)
            self._wrapper.plan(indptr, ids, last_page_len, *sizes, **dtypes)
            self._is_planned = True
            return
        offsets = torch.cat((indptr, last_page_len)).pin_memory()
        self._offsets.copy_(offsets, non_blocking=True)
        self._indices[: len(indices)].copy_(indices, non_blocking=True)
        self._fast_plan(
            self._wrapper,
            indptr,
            indices,
            last_page_len,
            *sizes,
            **dtypes,
            global_override_indptr_cpu=indptr,
        )

    def run(self, q: Tensor, paged_kv_cache: Tensor, *, out: Tensor) -> Tensor:
        attended: Tensor = self._wrapper.run(q, paged_kv_cache, out=out)
        return attended


class FlashInferWrappers:
    """`Wrappers` that come from the library."""

    def __init__(self, shape: AttentionShape) -> None:
        """Load the library.

        Raises:
            InputError: the library does not support this device, dtype or head width.
        """
        problem = flashinfer_problem(shape)
        if problem is not None:
            raise InputError(f"attention flashinfer: {problem}")
        # Imported only here, because it takes seconds and most machines do not have it.
        self._library: Any = import_module("flashinfer")
        self._device = shape.device

    def num_sms(self) -> int:
        return int(torch.cuda.get_device_properties(self._device).multi_processor_count)

    def workspace(self, num_bytes: int) -> Tensor:
        return torch.zeros(num_bytes, dtype=torch.uint8, device=self._device)

    def decode(self, workspace: Tensor, *, use_tensor_cores: bool) -> PagedWrapper:
        wrapper: PagedWrapper = self._library.BatchDecodeWithPagedKVCacheWrapper(
            workspace, "NHD", use_tensor_cores=use_tensor_cores
        )
        return wrapper

    def prefill(self, workspace: Tensor, kernel: PrefillKernel) -> PagedWrapper:
        wrapper: PagedWrapper = self._library.BatchPrefillWithPagedKVCacheWrapper(
            workspace, "NHD", backend=kernel
        )
        return wrapper

    def graph_decode(
        self, workspace: Tensor, indices: Tensor, num_rows: int, *, use_tensor_cores: bool
    ) -> PagedWrapper:
        return _GraphDecodeWrapper(
            self._library, workspace, indices, num_rows, use_tensor_cores=use_tensor_cores
        )

    def mark(self) -> QueueMark:
        new_event: Any = torch.cuda.Event  # has no type annotations
        mark: QueueMark = new_event()
        return mark


def plan_decode(
    wrapper: PagedWrapper, plan: BatchPlan, shape: AttentionShape, *, is_graph: bool = False
) -> None:
    """Plan a batch whose rows have one new token each.

    Offsets and lengths stay on the host, because the library plans there; it copies them before
    the call returns. Page ids go to the device, except for a graph: its wrapper has a place there.
    """
    if is_graph:
        page_ids = _pinned(plan.kv_indices, shape.device)
    else:
        page_ids = _to_device(plan.kv_indices, shape.device)
    wrapper.plan(
        torch.from_numpy(plan.kv_indptr),
        page_ids,
        torch.from_numpy(plan.last_page_len),
        *_sizes(shape),
        q_data_type=shape.dtype,
        kv_data_type=shape.dtype,
    )


def plan_prefill(wrapper: PagedWrapper, plan: BatchPlan, shape: AttentionShape) -> None:
    """Plan a batch of any rows, with causal attention: a row's new tokens are its last tokens."""
    wrapper.plan(
        torch.from_numpy(plan.qo_indptr),
        torch.from_numpy(plan.kv_indptr),
        _to_device(plan.kv_indices, shape.device),
        torch.from_numpy(plan.last_page_len),
        *_sizes(shape),
        causal=True,
        q_data_type=shape.dtype,
        kv_data_type=shape.dtype,
    )


def _sizes(shape: AttentionShape) -> tuple[int, int, int, int]:
    return shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.page_size


def _to_device(numbers: NDArray[np.int32], device: torch.device) -> Tensor:
    """Copy numbers to the device without making the host wait.

    A copy of more than 64 KiB from ordinary memory may wait for all queued work, so the numbers
    are pinned first. Torch reuses pinned memory only after the copy has run.
    """
    return _pinned(numbers, device).to(device, non_blocking=True)


def _pinned(numbers: NDArray[np.int32], device: torch.device) -> Tensor:
    """Numbers on the host; pinned if the device is a GPU."""
    tensor = torch.from_numpy(numbers)
    return tensor.pin_memory() if device.type == "cuda" else tensor
