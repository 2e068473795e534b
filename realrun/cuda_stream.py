"""The queue of a GPU: a stream of its own, timed by events."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from realrun.device_clock import MAX_AGE_NS, DeviceClock, Event, elapsed_ns
from realrun.streams import Array, DeviceTimes
from sim.core.errors import InvariantError

T = TypeVar("T")

# Torch gives these no types.
_new_stream: Callable[..., Any] = torch.cuda.Stream
_new_event: Callable[..., Any] = torch.cuda.Event
_timing_event: Callable[[], Event] = partial(_new_event, enable_timing=True)

# Cheap enough (about 50 us) not to matter once a second.
_REBASE_AFTER_NS = 1_000_000_000


class CudaStep(DeviceTimes):
    """A step on a GPU: a `SubmittedStep`, whose times come from events around the step's work."""

    def __init__(self, owner: "CudaStream", output: Tensor, start: Event, end: Event) -> None:
        self._owner = owner
        self._start = start
        self._end = end
        # Torch hands pinned memory out again only after the copies to it have run.
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
            raise InvariantError("the times of a step whose result was not taken")
        return self._span_ns


class CudaStream:
    """A queue that runs on the GPU what the host enqueues, all of it on one stream.

    Work is called at once: it only enqueues. A step's device time lies between an event enqueued
    before the work and one after it: on an idle GPU that includes the wait for the first launch,
    as the step does. The copy of the output to the host comes after the second event.

    Everything that the steps read and write has to be enqueued here, plans and copies of inputs
    included: do them inside `prepare`, or inside the work.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = _new_stream(device)
        # What was set up so far (weights, KV pages) is on the default stream.
        self._stream.wait_stream(torch.cuda.default_stream(device))
        self._last: CudaStep | None = None
        self._last_end_ns = 0
        with torch.cuda.stream(self._stream):
            self._stream.synchronize()
            self._clock = DeviceClock(_timing_event)

    def prepare(self, work: Callable[[], T]) -> T:
        """Do host work; its copies are enqueued on the stream."""
        with torch.cuda.stream(self._stream):
            return work()

    def submit(self, work: Callable[[], Tensor]) -> CudaStep:
        """Enqueue a step. What its work raises on the host is raised here."""
        with torch.cuda.stream(self._stream), torch.inference_mode():
            if self._is_idle() and self._clock.age_ns() > _REBASE_AFTER_NS:
                self._clock.rebase()
            start, end = _timing_event(), _timing_event()
            start.record()
            output = work()
            end.record()
            self._last = CudaStep(self, output, start, end)
        return self._last

    def synchronise(self) -> None:
        self._stream.synchronize()

    def close(self) -> None:
        self.synchronise()

    def span_ns(self, start: Event, end: Event) -> tuple[int, int]:
        """Host times of a finished step's two events; for steps, in the order of submission.

        Steps never overlap here, though a new base may move the axis by some microseconds.
        """
        forward_ns = elapsed_ns(start, end)
        end_ns = max(self._clock.at_ns(end), self._last_end_ns + forward_ns)
        self._last_end_ns = end_ns
        if self._clock.age_ns() > MAX_AGE_NS:
            self._clock.move_base(end)
        return end_ns - forward_ns, end_ns

    def _is_idle(self) -> bool:
        return self._last is None or self._last.is_done()
