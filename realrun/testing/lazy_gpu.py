"""A GPU made of a CPU that does all its work as late as possible.

The host only enqueues work, which runs when the host waits for it and not earlier. So the host is
as far ahead of the device as it can be, and a program that is right here does not depend on a quick
device. Three mistakes that a quick GPU hides most of the time show here at once:

* **Reuse of a buffer**: the host writes into pinned memory while a copy from it is queued.
* **Reading too early**: the host reads pinned memory while a copy to it is queued, or it reads the
  time of an event that has not happened.
* **Copies and waits during a capture** of a graph, which a capture cannot record.

Each raises a `HazardError`. Device memory that no work has written yet is NaN, or a large integer.

Streams advance independently: work on one stream waits for another stream only where the host asked
for it. So work that lacks such a wait reads memory that nobody has written yet.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

# Device time of a launch or copy. Sleep kernels take the time that they are given.
_WORK_NS = 1_000


class HazardError(RuntimeError):
    """The host did something that is only right if the device is quick, or that CUDA refuses."""


class Done(NamedTuple):
    """Work that has run.

    Attributes:
        kind: `launch`, `copy`, `graph` or `mark`.
        name: the kernel's name; the direction of a copy: `to device`, `to host`, `on device`.
    """

    kind: str
    name: str


@dataclass(slots=True, eq=False)
class _Work:
    done: Done
    run: Callable[[], None]
    duration_ns: int = _WORK_NS


@dataclass(slots=True, eq=False)
class _Wait:
    """Runs another stream up to a place in its queue."""

    stream: "LazyStream"
    place: int


@dataclass(slots=True, eq=False)
class LazyStream:
    """A queue of work.

    Attributes:
        work: all work that was ever enqueued.
        num_done: how much of it has run.
    """

    work: list[_Work | _Wait] = field(default_factory=list)
    num_done: int = 0


@dataclass(slots=True, eq=False)
class PinnedMemory:
    """Host memory that copies read or write while the host goes on."""

    storage: object
    num_reads_queued: int = 0
    num_writes_queued: int = 0


class LazyGpu:
    """The device.

    Attributes:
        log: all work that has run, in order.
        time_ns: the device's clock; only its work takes time.
        default: the default stream.
        current: the stream that new work goes to.
        num_sms, capability: what the device says of itself.
        may_wait: whether the host may wait for more than an event. A launch must not, because the
            device would run out of work meanwhile.
    """

    def __init__(
        self,
        *,
        num_sms: int = 132,
        capability: tuple[int, int] = (9, 0),
        is_lazy: bool = True,
    ) -> None:
        """Make a device; one that is not lazy runs all work at once, to compare with."""
        self._is_lazy = is_lazy
        self.may_wait = True
        self.num_sms = num_sms
        self.capability = capability
        self.log: list[Done] = []
        self.time_ns = 0
        self.default = LazyStream()
        self.current = self.default
        self._streams = [self.default]
        self._capture: list[_Work] | None = None
        self._pinned: dict[int, PinnedMemory] = {}

    # ---- work ----------------------------------------------------------------------------------

    def new_stream(self) -> LazyStream:
        self._streams.append(LazyStream())
        return self._streams[-1]

    def launch(self, name: str, run: Callable[[], None], duration_ns: int = _WORK_NS) -> None:
        """Enqueue a kernel on the current stream, or record it in the graph that is captured."""
        self._enqueue(_Work(Done("launch", name), run, duration_ns))

    def mark(self, run: Callable[[], None]) -> None:
        """Enqueue an event; `run` is called when the device comes to it."""
        self._enqueue(_Work(Done("mark", ""), run, 0))

    def copy(self, target: Tensor, source: Tensor, direction: str) -> None:
        """Enqueue a copy. The source is read when the device comes to it, not now.

        Args:
            target: memory on the host, or the memory of a device tensor.
            source: the same.
            direction: `to device`, `to host` or `on device`.
        """
        if self._capture is not None and direction != "on device":
            raise HazardError(f"a copy {direction} during the capture of a graph")
        read, written = self.pinned(source), self.pinned(target)
        if read is not None:
            read.num_reads_queued += 1
        if written is not None:
            written.num_writes_queued += 1

        def run() -> None:
            target.copy_(source)
            if read is not None:
                read.num_reads_queued -= 1
            if written is not None:
                written.num_writes_queued -= 1

        self._enqueue(_Work(Done("copy", direction), run))

    def wait_for(self, waiting: LazyStream, stream: LazyStream) -> None:
        """Let later work of one stream wait for the present work of another one."""
        if self._capture is None:
            waiting.work.append(_Wait(stream, len(stream.work)))

    def run_until(self, stream: LazyStream, place: int) -> None:
        """Run the first `place` pieces of a stream's work, and all that they wait for."""
        self._no_capture("a wait")
        while stream.num_done < place:
            work = stream.work[stream.num_done]
            stream.num_done += 1
            if isinstance(work, _Wait):
                self.run_until(work.stream, work.place)
                continue
            # What the device does is none of the host's calls of torch.
            with torch.inference_mode(), torch._C.DisableTorchFunction():
                work.run()
            self.time_ns += work.duration_ns
            self.log.append(work.done)

    def synchronise(self, stream: LazyStream | None = None) -> None:
        """Run all work of a stream, or of all streams."""
        for each in [stream] if stream is not None else self._streams:
            self.run_until(each, len(each.work))

    def wait(self, cause: str) -> None:
        """Run all work of the current stream, because the host needs a value or its memory."""
        if not self.may_wait:
            raise HazardError(f"{cause} makes the host wait for the device")
        self.synchronise(self.current)

    def _enqueue(self, work: _Work) -> None:
        if self._capture is not None:
            self._capture.append(work)
        else:
            self.current.work.append(work)
            if not self._is_lazy:
                self.synchronise(self.current)

    # ---- graphs --------------------------------------------------------------------------------

    @contextmanager
    def capturing(self, stream: LazyStream) -> Iterator[Callable[[], None]]:
        """Record work in place of enqueueing it. What this yields enqueues the record again."""
        self.synchronise()
        recorded: list[_Work] = []
        before, self.current, self._capture = self.current, stream, recorded
        try:
            yield lambda: self._replay(recorded)
        finally:
            self.current, self._capture = before, None

    def _replay(self, recorded: list[_Work]) -> None:
        def run() -> None:
            for work in recorded:
                work.run()

        name = f"{len(recorded)} launches"
        self._enqueue(_Work(Done("graph", name), run, len(recorded) * _WORK_NS))

    def _no_capture(self, what: str) -> None:
        if self._capture is not None:
            raise HazardError(f"{what} during the capture of a graph")

    # ---- pinned memory -------------------------------------------------------------------------

    def pin(self, memory: Tensor) -> Tensor:
        """Make host memory pinned."""
        self._no_capture("an allocation of pinned memory")
        storage = memory.untyped_storage()
        self._pinned[storage.data_ptr()] = PinnedMemory(storage)
        return memory

    def pinned(self, memory: Tensor) -> PinnedMemory | None:
        """What is known of pinned memory; None for other memory."""
        return self._pinned.get(memory.untyped_storage().data_ptr())

    def check_write(self, memory: Tensor) -> None:
        """Raises HazardError if the host may not write into this memory now."""
        pinned = self.pinned(memory)
        if pinned is not None and pinned.num_reads_queued:
            raise HazardError("pinned memory is written before the copy from it has run")

    def check_read(self, memory: Tensor) -> None:
        """Raises HazardError if the host may not read this memory now."""
        pinned = self.pinned(memory)
        if pinned is not None and pinned.num_writes_queued:
            raise HazardError("pinned memory is read before the copy to it has run")


class LazyEvent:
    """A mark in a stream's queue, like `torch.cuda.Event`."""

    def __init__(self, gpu: LazyGpu, *, enable_timing: bool = False) -> None:
        self._gpu = gpu
        self._has_time = enable_timing
        self._place: tuple[LazyStream, int] | None = None
        self._happened_ns: int | None = None

    def record(self, stream: LazyStream | None = None) -> None:
        stream = stream or self._gpu.current
        self._happened_ns = None
        before, self._gpu.current = self._gpu.current, stream
        self._gpu.mark(self._happen)
        self._gpu.current = before
        self._place = (stream, len(stream.work))

    def query(self) -> bool:
        return self._place is None or self._happened_ns is not None

    def synchronize(self) -> None:
        if self._place is not None and self._happened_ns is None:
            self._gpu.run_until(*self._place)

    def elapsed_time(self, end_event: "LazyEvent") -> float:
        """Milliseconds between two events that have happened."""
        if not (self._has_time and end_event._has_time):
            raise HazardError("the time of an event that was made without timing")
        if self._happened_ns is None or end_event._happened_ns is None:
            raise HazardError("the time of an event that has not happened")
        return (end_event._happened_ns - self._happened_ns) / 1e6

    def _happen(self) -> None:
        self._happened_ns = self._gpu.time_ns


def unwritten(memory: Tensor) -> Tensor:
    """Fill memory with values that nobody expects: NaN, or large integers."""
    if memory.dtype.is_floating_point:
        return memory.fill_(float("nan"))
    if memory.dtype is torch.bool:
        return memory.fill_(True)
    return memory.fill_(torch.iinfo(memory.dtype).max // 3)
