"""The simulation's clock, and the order of events at one instant.

SimPy runs events of equal time by priority, then in order of scheduling. The second rule would let
fast-forwarding, which schedules fewer events, change an outcome; so everything that may tie has a
priority of its own: arrivals, then clients, then the ends of steps by server, then the next steps.
"""

from typing import Any

from simpy import Environment
from simpy.events import Event, EventPriority

ARRIVAL = EventPriority(0)
_CLIENT = 1
_FIRST_STEP_END = 2
_FIRST_STEP_BEGIN = 1 << 20


def step_end(replica: int) -> EventPriority:
    """Priority of a server's step ends. Clients react at once, with SimPy's normal priority."""
    return EventPriority(_FIRST_STEP_END + replica)


def step_begin(replica: int) -> EventPriority:
    """Priority of a server's next decision: after everybody's step ends of that instant."""
    return EventPriority(_FIRST_STEP_BEGIN + replica)


class Clock(Environment):
    """A SimPy environment whose time is whole nanoseconds."""

    def __init__(self) -> None:
        super().__init__(initial_time=0)

    @property
    def now_ns(self) -> int:
        return int(self._now)

    def skip_to(self, time_ns: int) -> bool:
        """Let the time pass without an event; False if anything is due until then or right then."""
        if self.peek() <= time_ns:
            return False
        self._now = time_ns
        return True


class TimedEvent(Event):
    """Happens `delay_ns` from now, among events of that instant by `priority`."""

    def __init__(self, env: Clock, delay_ns: int, priority: EventPriority) -> None:
        super().__init__(env)
        self._ok = True
        self._value: Any = None
        env.schedule(self, priority=priority, delay=delay_ns)

    def give_way_to(self, other: "TimedEvent") -> None:
        """Processes that wait for this event wait for `other` instead."""
        waiting = self.callbacks
        self.callbacks = []
        other.callbacks = waiting
