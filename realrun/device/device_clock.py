"""Converts the times of GPU events to the host's clock."""

import time
from collections.abc import Callable
from typing import Protocol

_TRIES = 3

# Torch gives the time between events as float32 milliseconds. After 8 s this has a resolution of
# half a microsecond.
MAX_AGE_NS = 8_000_000_000


class DeviceEvent(Protocol):
    """A timed event in a device's stream, like `torch.cuda.Event`."""

    def record(self) -> None: ...
    def synchronize(self) -> None: ...
    def query(self) -> bool: ...
    def elapsed_time(self, end_event: "DeviceEvent") -> float: ...


class DeviceClock:
    """Converts event times to `time.perf_counter_ns`, with a base event whose host time is known.

    The base's host time is exact to about 10 us: the time in which an idle stream runs one event.
    The base must be renewed from time to time, for two reasons: the resolution of the time since
    the base gets worse, and the two clocks drift apart by a few microseconds a second. `rebase`
    makes a new base and needs an idle stream. If the stream is never idle, `move_base` moves the
    base to a later event: this keeps the resolution but does not correct the drift.
    """

    def __init__(
        self,
        make_event: Callable[[], DeviceEvent],
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._make_event = make_event
        self._now_ns = now_ns
        self.rebase()

    def rebase(self) -> None:
        """Make a new base now and wait for it. The stream must be idle."""
        tries = [self._mark() for _ in range(_TRIES)]
        _, self._base_ns, self._base = min(tries, key=lambda attempt: attempt[0])

    def age_ns(self) -> int:
        """Host time since the base."""
        return self._now_ns() - self._base_ns

    def at_ns(self, event: DeviceEvent) -> int:
        """The host time of an event that has happened."""
        return self._base_ns + elapsed_ns(self._base, event)

    def move_base(self, event: DeviceEvent) -> None:
        """Make this event the base. It must have happened, and must not be recorded again."""
        self._base_ns, self._base = self.at_ns(event), event

    def _mark(self) -> tuple[int, int, DeviceEvent]:
        """Record an event and wait for it; returns the duration, its middle, and the event."""
        event = self._make_event()
        before_ns = self._now_ns()
        event.record()
        event.synchronize()
        after_ns = self._now_ns()
        return after_ns - before_ns, (before_ns + after_ns) // 2, event


def elapsed_ns(start: DeviceEvent, end: DeviceEvent) -> int:
    """Device time between two events that have happened."""
    return round(start.elapsed_time(end) * 1e6)
