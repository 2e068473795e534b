"""Where events of a GPU lie on the host's clock."""

import time
from collections.abc import Callable
from typing import Protocol

_TRIES = 3

# Event differences are float32 milliseconds: at 8 s their last digit is half a microsecond.
MAX_AGE_NS = 8_000_000_000


class Event(Protocol):
    """A mark in a device's queue; torch.cuda.Event with timing."""

    def record(self) -> None: ...
    def synchronize(self) -> None: ...
    def query(self) -> bool: ...
    def elapsed_time(self, end_event: "Event") -> float: ...


class DeviceClock:
    """Maps events to time.perf_counter_ns through a base event whose host time is known.

    The base is known to within the time that an idle queue takes to run one event, about 10 us.
    Differences to the base are float32 milliseconds, and the two clocks drift apart by some
    microseconds a second, so the base has to be renewed: at a moment when the queue is idle
    (`rebase`), or, where it never is, by moving it to a later event (`move_base`), which keeps the
    precision but not the drift in check.
    """

    def __init__(
        self,
        make_event: Callable[[], Event],
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._make_event = make_event
        self._now_ns = now_ns
        self.rebase()

    def rebase(self) -> None:
        """Take a new base now. The queue has to be idle: this waits for the event."""
        tries = [self._mark() for _ in range(_TRIES)]
        _, self._base_ns, self._base = min(tries, key=lambda attempt: attempt[0])

    def age_ns(self) -> int:
        """Time since the base."""
        return self._now_ns() - self._base_ns

    def at_ns(self, event: Event) -> int:
        """The host's time at an event that has happened."""
        return self._base_ns + elapsed_ns(self._base, event)

    def move_base(self, event: Event) -> None:
        """Count from this event on, which has happened and is not recorded again."""
        self._base_ns, self._base = self.at_ns(event), event

    def _mark(self) -> tuple[int, int, Event]:
        """How long one event took, its host time (the middle of that), and the event."""
        event = self._make_event()
        before_ns = self._now_ns()
        event.record()
        event.synchronize()
        after_ns = self._now_ns()
        return after_ns - before_ns, (before_ns + after_ns) // 2, event


def elapsed_ns(start: Event, end: Event) -> int:
    """Device time between two events that have happened."""
    return round(start.elapsed_time(end) * 1e6)
