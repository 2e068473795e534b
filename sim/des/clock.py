"""The simulation's clock, the order of events at one instant, and waits that may be cut short.

SimPy runs events of equal time by priority, then in order of scheduling. The second rule would let
fast-forwarding, which schedules fewer events, change an outcome; so everything that may tie has a
priority of its own: arrivals, then clients, then the ends of steps by server, then the next steps.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
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


class DecodeWait:
    """Ends when the decision after the last step is due, or the first that sees an arrival.

    Attributes:
        num_steps: steps decided before it ends.
        end: the event to wait for.
    """

    def __init__(self, env: Clock, decided_ns: NDArray[np.int64], priority: EventPriority) -> None:
        """`decided_ns`: when each step is decided, and the one after; shape [num_steps + 1]."""
        self._env = env
        self._decided_ns = decided_ns
        self._priority = priority
        self.num_steps = len(decided_ns) - 1
        self.end = self._at(self.num_steps)

    def cut_short(self) -> None:
        """A request arrives now; a decision at this very time sees it."""
        decided_ns = self._decided_ns[:-1]
        self.num_steps = int(decided_ns.searchsorted(self._env.now_ns, side="left"))
        earlier = self._at(self.num_steps)
        self.end.give_way_to(earlier)
        self.end = earlier

    def _at(self, step: int) -> TimedEvent:
        delay_ns = int(self._decided_ns[step]) - self._env.now_ns
        return TimedEvent(self._env, delay_ns, self._priority)
