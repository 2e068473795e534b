"""Tensors of a lazy GPU: in Python they are on `cuda:0`, but their memory is on the host.

Torch calls `__torch_dispatch__` for every operation on such a tensor. Views are made at once, as on
a real GPU: they are nothing but sizes. All other operations are enqueued, and their outputs have
values only after they have run. What makes the host wait on a real GPU, such as `item()`, makes it
wait here.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from realrun.testing.lazy_gpu import HazardError, LazyGpu, unwritten

CUDA = torch.device("cuda", 0)

_aten = torch.ops.aten
# The host needs their values, or the size of their output depends on values.
_WAITS = {
    _aten._local_scalar_dense.default,
    _aten.equal.default,
    _aten.masked_select.default,
    _aten.nonzero.default,
    _aten.unique_consecutive.default,
}
# CUDA stages copies up to this size from ordinary memory, so that the host need not wait.
_STAGED_BYTES = 64 * 1024
_ALLOCATIONS = {_aten.empty_like.default, _aten.new_empty.default, _aten.new_empty_strided.default}


class DeviceTensor(Tensor):
    """A tensor of a lazy GPU.

    Attributes:
        memory: the same tensor on the host; it has values only after the work that writes them.
        gpu: the device.
    """

    memory: Tensor
    gpu: LazyGpu

    @staticmethod
    def __new__(cls, memory: Tensor, gpu: LazyGpu) -> Self:
        # Views of a tensor that was made outside of inference mode must be such tensors, too.
        with torch.inference_mode(mode=False):
            tensor: Self = Tensor._make_wrapper_subclass(
                cls,
                memory.size(),
                strides=memory.stride(),
                storage_offset=memory.storage_offset(),
                dtype=memory.dtype,
            )
        tensor.memory, tensor.gpu = memory, gpu
        return tensor

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """What torch says in Python; its C++ takes the tensor for one of the host."""
        return CUDA

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            copied: Any = self.detach().clone()
            if isinstance(self, nn.Parameter):
                copied = nn.Parameter(copied, requires_grad=False)
            memo[id(self)] = copied
        return memo[id(self)]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        tensors = _tensors((args, kwargs))
        gpu = next(each.gpu for each in tensors if isinstance(each, DeviceTensor))
        if func is _aten.copy_.default:
            return copy_into(gpu, *args, **kwargs)
        if func is _aten._to_copy.default:
            return converted(gpu, *args, **kwargs)
        whole = func.decompose(*args, **kwargs)
        if whole is not NotImplemented:
            return whole
        kwargs.pop("device", None)
        kwargs.pop("pin_memory", None)
        _check_devices(func, tensors)
        if _writes(func):
            return _in_place(gpu, func, args, kwargs)
        if func in _WAITS:
            gpu.wait(str(func))
        if func in _WAITS or _is_view(func):
            return _wrap(gpu, func(*_memory(args), **_memory(kwargs)))
        return launch(gpu, func, args, kwargs)


def launch(gpu: LazyGpu, func: Any, args: Any, kwargs: Any) -> Any:
    """Enqueue a function that makes new tensors; returns these, without values so far."""
    shapes = func(*_meta(args), **_meta(kwargs))
    targets = _map(_place_for, shapes)
    if func in _ALLOCATIONS:
        return _wrap(gpu, targets)
    inputs, options = _memory(args), _memory(kwargs)

    def run() -> None:
        results = func(*inputs, **options)
        for target, result in zip(_tensors(targets), _tensors(results), strict=True):
            target.copy_(result)

    gpu.launch(str(func), run)
    return _wrap(gpu, targets)


def copy_into(gpu: LazyGpu, target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """`target.copy_(source)`, for any direction.

    A copy from ordinary memory reads it before the call returns, as CUDA does. What makes the host
    wait: a copy to ordinary memory, a copy from much of it, and one that is not `non_blocking`.
    """
    if not target.numel():
        return target  # torch copies nothing then, and all such tensors have the same address
    if isinstance(target, DeviceTensor) and isinstance(source, DeviceTensor):
        gpu.copy(target.memory, source.memory, "on device")
    elif isinstance(target, DeviceTensor):
        is_pinned = gpu.pinned(source) is not None
        gpu.copy(target.memory, source if is_pinned else source.clone(), "to device")
        if not non_blocking:
            gpu.wait("a blocking copy")
        elif not is_pinned and source.nbytes > _STAGED_BYTES:
            gpu.wait("a copy from memory that is not pinned")
    elif isinstance(source, DeviceTensor):
        gpu.copy(target, source.memory, "to host")
        if not (non_blocking and gpu.pinned(target) is not None):
            gpu.wait("a copy to the host")
    return target


def converted(
    gpu: LazyGpu, source: DeviceTensor, *, dtype: torch.dtype | None = None, **_: Any
) -> DeviceTensor:
    """A copy in another dtype."""
    memory = torch.empty_like(source.memory, dtype=dtype or source.dtype)
    target = DeviceTensor(unwritten(memory), gpu)
    copy_into(gpu, target, source)
    return target


def to_device(gpu: LazyGpu, source: Tensor, *, non_blocking: bool = False) -> DeviceTensor:
    """A copy on the device of a tensor of the host."""
    target = DeviceTensor(_place_for(source), gpu)
    copy_into(gpu, target, source, non_blocking)
    return target


def to_host(gpu: LazyGpu, source: DeviceTensor) -> Tensor:
    """A copy on the host; the host waits for it."""
    return copy_into(gpu, torch.empty_like(source.memory), source)


def _in_place(gpu: LazyGpu, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Enqueue a function that writes into its arguments; returns those that it would return."""
    inputs, options = _memory(args), _memory(kwargs)
    gpu.launch(str(func), lambda: func(*inputs, **options))
    written = [
        args[place] if place < len(args) else kwargs.get(argument.name)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return written[0] if len(written) == 1 else tuple(written)


def _place_for(tensor: Tensor) -> Tensor:
    """Memory for a tensor like this one."""
    return unwritten(torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype))


def _check_devices(func: Any, tensors: Sequence[Tensor]) -> None:
    """A kernel takes tensors of its device, and single numbers of the host."""
    for each in tensors:
        if not isinstance(each, DeviceTensor) and each.dim():
            raise HazardError(f"{func} got a tensor of the device and one of the host")


def _is_view(func: Any) -> bool:
    infos = [each.alias_info for each in func._schema.returns]
    return any(info is not None and not info.is_write for info in infos)


def _writes(func: Any) -> bool:
    infos = [each.alias_info for each in func._schema.arguments]
    return any(info is not None and info.is_write for info in infos)


def _memory(values: Any) -> Any:
    return _map(lambda tensor: getattr(tensor, "memory", tensor), values)


def _meta(values: Any) -> Any:
    return _map(_shape_of, values)


def _shape_of(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


def _wrap(gpu: LazyGpu, values: Any) -> Any:
    return _map(lambda tensor: DeviceTensor(tensor, gpu), values)


def _map(function: Callable[[Tensor], Any], values: Any) -> Any:
    """Apply a function to the tensors among values, and in lists, tuples and dicts of them."""
    if isinstance(values, Tensor):
        return function(values)
    if isinstance(values, (list, tuple)):
        return type(values)([_map(function, value) for value in values])
    if isinstance(values, dict):
        return {key: _map(function, value) for key, value in values.items()}
    return values


def _tensors(values: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _map(found.append, values)
    return found
