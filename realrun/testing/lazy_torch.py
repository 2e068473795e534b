"""Makes torch use a lazy GPU as its CUDA device, for as long as a test needs it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import realrun.device.cuda_stream
import realrun.runner.cuda_graph
from realrun.testing.device_tensor import CUDA, DeviceTensor, converted, to_device, to_host
from realrun.testing.lazy_gpu import HazardError, LazyEvent, LazyGpu, LazyStream, unwritten

_GIB = 2**30
_MOVES = {Tensor.to, Tensor.cpu, Tensor.tolist}
_SET_DATA: Any = Tensor.data.__set__  # type: ignore[attr-defined]
_HOST_READS = {Tensor.numpy, Tensor.tolist, Tensor.item, Tensor.clone}
_HOST_JOINS = {torch.cat, torch.stack}
_UNSET = {torch.empty, torch.empty_strided, torch.empty_like}
_FROM_VALUES = {torch.tensor, torch.as_tensor, torch.asarray}


class _Calls(TorchFunctionMode):
    """Sends what names the CUDA device, or pinned memory, to the lazy GPU."""

    def __init__(self, gpu: LazyGpu) -> None:
        super().__init__()
        self._gpu = gpu

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        options = dict(kwargs or {})
        subject: Any = args[0] if args else None
        if isinstance(subject, DeviceTensor):
            if func in _MOVES:
                return self._moved(func, args, options)
            if func == _SET_DATA:
                subject.memory = args[1].memory
        elif func is Tensor.to and any(map(_is_cuda, (*args[1:], *options.values()))):
            dtypes = [
                each for each in (*args[1:], *options.values()) if isinstance(each, torch.dtype)
            ]
            return to_device(
                self._gpu,
                subject.to(dtypes[0]) if dtypes else subject,
                non_blocking=bool(options.get("non_blocking", False)),
            )
        if func is Tensor.pin_memory:
            return self._gpu.pin(subject.clone())
        if _is_cuda(options.get("device")):
            return self._create(func, args, options)
        if options.pop("pin_memory", False):
            return self._gpu.pin(func(*args, **options))
        self._check_host(func, subject)
        return func(*args, **options)

    def _moved(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """A tensor of the device in another dtype or on the host."""
        values = [*args[1:], *options.values()]
        wanted = [torch.device(v) for v in values if isinstance(v, (str, torch.device))]
        dtypes = [value for value in values if isinstance(value, torch.dtype)]
        wanted += [value.device for value in values if isinstance(value, Tensor)]
        dtypes += [value.dtype for value in values if isinstance(value, Tensor)]
        tensor: DeviceTensor = args[0]
        if dtypes and dtypes[0] is not tensor.dtype:
            tensor = converted(self._gpu, tensor, dtype=dtypes[0])
        if func is not Tensor.to or (wanted and wanted[0].type == "cpu"):
            host = to_host(self._gpu, tensor)
            return host.tolist() if func is Tensor.tolist else host
        return tensor

    def _create(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """New tensors of the device. A constant is there at once; only the launch is enqueued."""
        options["device"] = "cpu"
        if func in _FROM_VALUES and args and isinstance(args[0], DeviceTensor):
            return args[0]
        memory = _zeros(args, options) if func is torch.zeros else func(*args, **options)
        if func in _UNSET:
            return DeviceTensor(unwritten(memory), self._gpu)
        if func in _FROM_VALUES:
            self._gpu.copy(memory, memory.clone(), "to device")
        else:
            self._gpu.launch(func.__name__, _nothing)
        return DeviceTensor(memory, self._gpu)

    def _check_host(self, func: Any, subject: Any) -> None:
        """Refuse to read or write pinned memory that queued copies use."""
        if func in _HOST_JOINS:
            for part in subject:
                if part.device.type == "cpu":
                    self._gpu.check_read(part)
        if not isinstance(subject, Tensor) or subject.device.type != "cpu":
            return
        name = getattr(func, "__name__", "")
        if func in _HOST_READS:
            self._gpu.check_read(subject)
        # Torch's methods that write in place end in one underscore, as `copy_` does.
        elif name == "__setitem__" or (name.endswith("_") and not name.endswith("__")):
            self._gpu.check_write(subject)


class _Graph:
    """`torch.cuda.CUDAGraph`."""

    def __init__(self) -> None:
        self.replay: Callable[[], None] = _nothing


class StreamHandle:
    """`torch.cuda.Stream`."""

    device = CUDA

    def __init__(self, gpu: LazyGpu, stream: LazyStream) -> None:
        self.gpu = gpu
        self.stream = stream

    def synchronize(self) -> None:
        self.gpu.synchronise(self.stream)

    def wait_stream(self, other: "StreamHandle") -> None:
        self.gpu.wait_for(self.stream, other.stream)


@contextmanager
def lazy_cuda(gpu: LazyGpu) -> Iterator[LazyGpu]:
    """A context in which torch finds this GPU, and the runner uses it."""

    def new_stream(_: object = None) -> StreamHandle:
        return StreamHandle(gpu, gpu.new_stream())

    def new_event(*, enable_timing: bool = False) -> LazyEvent:
        return LazyEvent(gpu, enable_timing=enable_timing)

    def sleep(cycles: int) -> None:
        gpu.launch("sleep", _nothing, cycles)

    @contextmanager
    def on_stream(handle: StreamHandle) -> Iterator[None]:
        before, gpu.current = gpu.current, handle.stream
        try:
            yield
        finally:
            gpu.current = before

    @contextmanager
    def graph(graph: _Graph, *, stream: StreamHandle, **_: object) -> Iterator[None]:
        with gpu.capturing(stream.stream) as graph.replay:
            yield

    replaced = {
        "Stream": new_stream,
        "Event": new_event,
        "CUDAGraph": _Graph,
        "graph": graph,
        "graph_pool_handle": object,
        "stream": on_stream,
        "device": lambda *_: nullcontext(),
        "current_stream": lambda *_: StreamHandle(gpu, gpu.current),
        "default_stream": lambda *_: StreamHandle(gpu, gpu.default),
        "synchronize": lambda *_: gpu.synchronise(),
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "empty_cache": _nothing,
        "mem_get_info": lambda *_: (64 * _GIB, 80 * _GIB),
        "get_device_capability": lambda *_: gpu.capability,
        "get_device_name": lambda *_: "lazy GPU",
        "get_device_properties": lambda *_: SimpleNamespace(
            name="lazy GPU",
            multi_processor_count=gpu.num_sms,
            total_memory=80 * _GIB,
            major=gpu.capability[0],
            minor=gpu.capability[1],
        ),
        "_sleep": sleep,
    }
    new_generator = torch.Generator
    with ExitStack() as stack:
        stack.enter_context(patch.object(torch, "Generator", lambda *_: new_generator()))
        for name, value in replaced.items():
            stack.enter_context(patch.object(torch.cuda, name, value))
        # These modules have looked torch's names up when they were imported.
        for module, name, value in (
            (realrun.device.cuda_stream, "_new_stream", new_stream),
            (realrun.device.cuda_stream, "_new_event", new_event),
            (realrun.device.cuda_stream, "_timing_event", lambda: new_event(enable_timing=True)),
            (realrun.device.cuda_stream, "_sleep", sleep),
            (realrun.runner.cuda_graph, "_new_stream", new_stream),
            (realrun.runner.cuda_graph, "_new_graph", _Graph),
            (realrun.runner.cuda_graph, "_capturing", graph),
        ):
            stack.enter_context(patch.object(module, name, value))
        stack.enter_context(_Calls(gpu))
        yield gpu


def _zeros(args: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
    """Zeros that take no memory before somebody writes to them: workspaces are large."""
    shape = torch.zeros(*args, **{**options, "device": "meta"})
    content = np.zeros(max(shape.nbytes, 1), dtype=np.uint8)
    return torch.from_numpy(content)[: shape.nbytes].view(shape.dtype).view(shape.shape)


def _is_cuda(device: object) -> bool:
    if isinstance(device, str):
        device = torch.device(device)
    return isinstance(device, torch.device) and device.type == "cuda"


def _nothing() -> None:
    """What a launch does whose result is there already."""


__all__ = ["HazardError", "StreamHandle", "lazy_cuda"]
