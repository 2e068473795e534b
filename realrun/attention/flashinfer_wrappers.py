"""FlashInfer's wrappers: how they are made, and called.

Written against FlashInfer 0.6.14. What the rest of the package knows of the library is in the
protocols below; tests give their own implementations.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from realrun.attention.flashinfer_shape import AttentionShape, flashinfer_problem
from realrun.batch_plan import BatchPlan
from realrun.plan_tensors import PlanTensors
from sim.core.errors import InputError

PrefillKernel = Literal["fa2", "fa3"]


class PagedWrapper(Protocol):
    """A wrapper of the library: planned once for a batch, run for every layer.

    Attributes:
        plan: takes the batch's offsets, page ids and last page lengths, then sizes.
    """

    plan: Callable[..., None]

    def run(self, q: Tensor, paged_kv_cache: Tensor, *, out: Tensor) -> Tensor: ...


class PlannedWrapper:
    """A wrapper with the plan of a step: `StepAttention`, the same for all layers."""

    def __init__(self, wrapper: PagedWrapper) -> None:
        self._wrapper = wrapper

    def run(self, layer: int, query: Tensor, kv: Tensor, inputs: PlanTensors) -> Tensor:
        """Attend, into a fresh tensor: kernels follow the strides of queries but not of outputs."""
        out = torch.empty_like(query, memory_format=torch.contiguous_format)
        return self._wrapper.run(query, kv, out=out)


class QueueMark(Protocol):
    """A mark in the device's queue; torch.cuda.Event."""

    def record(self) -> None: ...
    def synchronize(self) -> None: ...


class Wrappers(Protocol):
    """Makes wrappers. Each has a pinned buffer and a device buffer of its own for its plans."""

    def num_sms(self) -> int:
        """Streaming multiprocessors of the device."""
        ...

    def workspace(self, num_bytes: int) -> Tensor:
        """Uint8 [num_bytes] on the device, zeroed; may serve all wrappers used on one stream."""
        ...

    def decode(self, workspace: Tensor, *, use_tensor_cores: bool) -> PagedWrapper:
        """For batches of one new token a row."""
        ...

    def prefill(self, workspace: Tensor, kernel: PrefillKernel) -> PagedWrapper:
        """For any batch."""
        ...

    def graph_decode(
        self, workspace: Tensor, indices: Tensor, num_rows: int, *, use_tensor_cores: bool
    ) -> PagedWrapper:
        """A decode wrapper whose plans for `num_rows` rows all lie at the same addresses.

        Args:
            workspace: as above.
            indices: int32 buffer for the page ids of all rows; may serve all sizes.
            num_rows: rows of every plan.
            use_tensor_cores: which kernel.
        """
        ...

    def mark(self) -> QueueMark:
        """A new mark, not recorded yet: waiting for it returns at once."""
        ...


class FlashInferWrappers:
    """`Wrappers` of the library itself."""

    def __init__(self, shape: AttentionShape) -> None:
        """Load the library.

        Raises:
            InputError: it does not serve this device, dtype or head width.
        """
        problem = flashinfer_problem(shape)
        if problem is not None:
            raise InputError(f"attention flashinfer: {problem}")
        # Only here: the library takes seconds to load, and is not there on most machines.
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
        wrapper: PagedWrapper = self._library.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(
            workspace,
            torch.zeros(num_rows + 1, dtype=torch.int32, device=self._device),
            indices,
            torch.ones(num_rows, dtype=torch.int32, device=self._device),
            "NHD",
            use_tensor_cores=use_tensor_cores,
        )
        return wrapper

    def mark(self) -> QueueMark:
        new_event: Any = torch.cuda.Event  # torch gives it no types
        mark: QueueMark = new_event()
        return mark


def plan_decode(wrapper: PagedWrapper, plan: BatchPlan, shape: AttentionShape) -> None:
    """Plan rows of one new token.

    Offsets and lengths stay on the host, where they are planned with: a few bytes a row, taken
    over before the call returns. Page ids go to the device.
    """
    wrapper.plan(
        torch.from_numpy(plan.kv_indptr),
        _to_device(plan.kv_indices, shape.device),
        torch.from_numpy(plan.last_page_len),
        *_sizes(shape),
        q_data_type=shape.dtype,
        kv_data_type=shape.dtype,
    )


def plan_prefill(wrapper: PagedWrapper, plan: BatchPlan, shape: AttentionShape) -> None:
    """Plan rows of any length, causal: a row's new tokens are the last of those attended to."""
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
    """Move numbers to the device without the host waiting, however many they are.

    From ordinary memory a copy of more than 64 KiB may wait for all that is queued. Torch hands
    the pinned memory out again only after the copy has run.
    """
    tensor = torch.from_numpy(numbers)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
