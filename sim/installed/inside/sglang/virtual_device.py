"""Stands in for `torch.cuda` in SGLang's modules for host memory, with streams in virtual time.

A stream is known by the time at which its work ends. SGLang decides when a copy starts and who
waits for it; the driver says how long it takes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stream:
    """Work that runs in order; the last of it ends at `free_s`."""

    def __init__(self) -> None:
        self.free_s = 0.0

    def wait_stream(self, other: "Stream") -> None:
        self.free_s = max(self.free_s, other.free_s)

    def synchronize(self) -> None:
        raise RuntimeError("a copy failed")


class VirtualDevice:
    """One device, seen from the scheduler's thread.

    Attributes:
        now_s: the thread's time. It moves on when the thread waits for a copy.
        forward: the stream of the model's steps.
        copied_s: how long all copies took together.
    """

    Stream = Stream

    def __init__(self, copy_s_per_token: float) -> None:
        self.now_s = self.copied_s = 0.0
        self.forward = Stream()
        self._copy_s_per_token = copy_s_per_token
        self._current = Stream()
        device = self

        class Event:
            def __init__(self, **_: Any) -> None:
                self.time_s = 0.0

            def record(self, *_: Any) -> None:
                # Whole nanoseconds, so that copies of the same length end together.
                self.time_s = round(max(device._current.free_s, device.now_s), 9)

            def query(self) -> bool:
                return self.time_s <= device.now_s

            def wait(self, stream: Stream) -> None:
                # A copy waits for an event when it begins: in whole nanoseconds, too.
                stream.free_s = max(round(stream.free_s, 9), self.time_s)

            def synchronize(self) -> None:
                device.now_s = max(device.now_s, self.time_s)

        self.Event = Event

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        before, self._current = self._current, stream
        try:
            yield
        finally:
            self._current = before

    def copy(self, num_tokens: float) -> None:
        """Copy on the current stream."""
        copy_s = num_tokens * self._copy_s_per_token
        self._current.free_s += copy_s
        self.copied_s += copy_s
