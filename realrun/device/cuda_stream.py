"""The stream of a GPU, with CUDA events that measure each step."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from realrun.device.device_clock import MAX_AGE_NS, DeviceClock, DeviceEvent, elapsed_ns
from realrun.device.streams import Array, SubmittedStepTimes
from sim.core.errors import InvariantError

T = TypeVar("T")

# Torch has no type annotations for these.
_new_stream: Callable[..., Any] = torch.cuda.Stream
_new_event: Callable[..., Any] = torch.cuda.Event
_timing_event: Callable[[], DeviceEvent] = partial(_new_event, enable_timing=True)

_sleep: Callable[[int], None] = torch.cuda._sleep

# Clock cycles of one kernel that keeps the device busy, while its clock is measured.
_CYCLES_TO_TIME = 10_000_000

# How often the clock gets a new base. This takes about 50 us, which does not matter once a second.
_REBASE_AFTER_NS = 1_000_000_000


class CudaStep(SubmittedStepTimes):
    """A `SubmittedStep` on a GPU. Its times come from events before and after the step's work."""

    def __init__(
        self, owner: "CudaStream", output: Tensor, start: DeviceEvent, end: DeviceEvent
    ) -> None:
        self._owner = owner
        self._start = start
        self._end = end
        # Torch reuses pinned memory only after the copies to it have run.
        self._host = torch.empty(output.shape, dtype=output.dtype, pin_memory=True)
        self._host.copy_(output, non_blocking=True)
        self._ready = _new_event()
        self._ready.record()
        self._output: Array | None = None
        self._span_ns: tuple[int, int] | None = None

    def is_done(self) -> bool:
        return bool(self._ready.query())

    def result(self) -> Array:
        if self._output is None:
            self._ready.synchronize()
            self._output = self._host.numpy()
            self._span_ns = self._owner.span_ns(self._start, self._end)
        return self._output

    def _known_span_ns(self) -> tuple[int, int]:
        if self._span_ns is None:
            raise InvariantError("a step's times were read before its result")
        return self._span_ns


class CudaStream:
    """A GPU's `DeviceStream`; all work runs on one CUDA stream.

    `submit` calls the work at once, because the work only enqueues kernels. A step's device time
    is the time between an event before the work and one after it. On an idle GPU this includes the
    wait for the first kernel launch. The output is copied to the host after the second event.

    Everything that steps read or write must be enqueued on this stream. So plan the attention and
    copy inputs inside `prepare`, or inside the work.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = _new_stream(device)
        # Weights and KV pages were set up on the default stream.
        self._stream.wait_stream(torch.cuda.default_stream(device))
        self._last: CudaStep | None = None
        self._last_end_ns = 0
        with torch.cuda.stream(self._stream):
            self._stream.synchronize()
            self._clock = DeviceClock(_timing_event)
            self._cycles_per_ns = self._measured_clock()

    def prepare(self, work: Callable[[], T]) -> T:
        """Call `work` on the host; the copies it makes are enqueued on the stream."""
        with torch.cuda.stream(self._stream):
            return work()

    def submit(self, work: Callable[[], Tensor], *, busy_ns: int = 0) -> CudaStep:
        """Enqueue a step. An exception of its host work is raised here."""
        with torch.cuda.stream(self._stream), torch.inference_mode():
            is_idle = self._last is None or self._last.is_done()
            if is_idle and self._clock.age_ns() > _REBASE_AFTER_NS:
                self._clock.rebase()
            start, end = _timing_event(), _timing_event()
            if busy_ns:
                _sleep(round(busy_ns * self._cycles_per_ns))
            start.record()
            output = work()
            end.record()
            self._last = CudaStep(self, output, start, end)
        return self._last

    def _measured_clock(self) -> float:
        """Cycles in a nanosecond, of a device that has just been busy."""
        start, end = _timing_event(), _timing_event()
        _sleep(_CYCLES_TO_TIME)
        start.record()
        _sleep(_CYCLES_TO_TIME)
        end.record()
        end.synchronize()
        return _CYCLES_TO_TIME / elapsed_ns(start, end)

    def synchronise(self) -> None:
        self._stream.synchronize()

    def close(self) -> None:
        self.synchronise()

    def span_ns(self, start: DeviceEvent, end: DeviceEvent) -> tuple[int, int]:
        """Host times of a finished step's two events. Call it in the order of submission.

        A new base event may shift the times by some microseconds; the result is corrected so that
        steps never overlap.
        """
        forward_ns = elapsed_ns(start, end)
        end_ns = max(self._clock.at_ns(end), self._last_end_ns + forward_ns)
        self._last_end_ns = end_ns
        if self._clock.age_ns() > MAX_AGE_NS:
            self._clock.move_base(end)
        return end_ns - forward_ns, end_ns
