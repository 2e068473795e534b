"""The simulation's clock, the order of events at the same time, and waits that can be cut short.

SimPy runs events of equal time by priority, then in the order in which they were scheduled. Under
fast-forward fewer events are scheduled, so the second rule could change results. Therefore all
events that can happen at the same time have different priorities: first clients that give up, then
arrivals, then other clients, then transfers of KV between servers, then the step ends of server 0,
1, ..., then the next decisions of server 0, 1, ..., then autoscalers.

So a step that ends when a transfer arrives already finds its KV. A transfer that a step's end
starts begins in an event of the same time, before the step ends of servers with higher numbers.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray
from simpy.core import EmptySchedule, Environment, SimTime
from simpy.events import NORMAL, Event, EventPriority

from sim.engine.store import Store

GIVING_UP = EventPriority(-1)
ARRIVAL = EventPriority(0)
# Clients have SimPy's default priority, 1.
TRANSFER_END = EventPriority(2)
_FIRST_STEP_END = 3
_FIRST_STEP_BEGIN = 1 << 20
AUTOSCALE = EventPriority(1 << 30)


def step_end(replica: int) -> EventPriority:
    """Priority of the ends of a server's steps: after arrivals and clients."""
    return EventPriority(_FIRST_STEP_END + replica)


def step_begin(replica: int) -> EventPriority:
    """Priority of a server's next decision: after all step ends of the same time."""
    return EventPriority(_FIRST_STEP_BEGIN + replica)


class Clock(Environment):
    """A SimPy environment whose time is whole nanoseconds.

    What SimPy does for each event is done here, where it is compiled.

    Attributes:
        now_ns: the time.
        num_watchers: processes that only watch the others. Each of them waits for one event.
        shared_stores: those below host memory that servers share, by their places in `stores` of
            their schedulers.
    """

    def __init__(self) -> None:
        super().__init__(initial_time=0)
        self.now_ns = 0
        self._events = self._queue
        self._num_scheduled = 0
        self.num_watchers = 0
        self.shared_stores: dict[int, Store] = {}
        # The latest end of a step: when, and the priority of its event.
        self._step_end_ns, self._step_end_priority = -1, 0

    @property
    def now(self) -> int:
        return self.now_ns

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: SimTime = 0) -> None:
        self._num_scheduled += 1
        entry = (self.now_ns + delay, priority, self._num_scheduled, event)
        heappush(self._events, entry)

    def step(self) -> None:
        if not self._events:
            raise EmptySchedule
        entry = heappop(self._events)
        self.now_ns = int(entry[0])
        event: Any = entry[3]
        callbacks: list[Callable[[Event], None]] = event.callbacks
        event.callbacks = None
        for callback in callbacks:
            callback(event)
        if not (event._ok or hasattr(event, "_defused")):
            # SimPy raises a copy, which does not know its key.
            error: BaseException = event._value
            raise error

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to watch. A watcher asks this when its event happens."""
        return len(self._events) < self.num_watchers

    def note_step_end(self, priority: EventPriority) -> None:
        """A step has ended now; its server's step ends have this priority."""
        self._step_end_ns, self._step_end_priority = self.now_ns, priority

    def is_past(self, priority: EventPriority) -> bool:
        """Whether what happens now follows a step end of this time, and of a later priority."""
        return (self._step_end_ns, self._step_end_priority) > (self.now_ns, priority)

    def skip_to(self, time_ns: int) -> bool:
        """Set the clock to `time_ns`; returns False, with no effect, if an event is due by then."""
        # As `peek`, without the exception that it needs for an empty queue.
        if self._events and self._events[0][0] <= time_ns:
            return False
        self.now_ns = time_ns
        return True


class TimedEvent(Event):
    """Happens `delay_ns` from now; `priority` orders events of the same time."""

    def __init__(self, env: Clock, delay_ns: int, priority: EventPriority) -> None:
        self.env = env
        self.callbacks = []
        self._ok = True
        self._value: Any = None
        env.schedule(self, priority, delay_ns)

    def give_way_to(self, other: "TimedEvent") -> None:
        """Let the processes that wait for this event wait for `other` instead."""
        waiting = self.callbacks
        self.callbacks = []
        other.callbacks = waiting


class DecodeWait:
    """A wait over several decode steps, which an arrival can cut short.

    It ends at the decision after the last step, or at the first decision that receives an arrival.

    Attributes:
        num_steps: steps that are decided before the wait ends.
    """

    def __init__(self, env: Clock, decided_ns: NDArray[np.int64], priority: EventPriority) -> None:
        """Begin to wait.

        `decided_ns` is when each step is decided, and the step after them; shape [num_steps + 1].
        `priority` is that of the event that ends the wait.
        """
        self._env = env
        self._decided_ns = decided_ns
        self._priority = priority
        self.num_steps = len(decided_ns) - 1
        self.end = self._at(self.num_steps)

    @property
    def next_step(self) -> int:
        """The first step that is not decided yet. One that is decided at this same time counts."""
        return int(self._decided_ns[:-1].searchsorted(self._env.now_ns, side="left"))

    def cut_short(self, num_steps: int) -> None:
        """End before the decision of step `num_steps`, counted from 0, if the wait is longer."""
        if num_steps >= self.num_steps:
            return
        self.num_steps = num_steps
        earlier = self._at(num_steps)
        self.end.give_way_to(earlier)
        self.end = earlier

    def _at(self, step: int) -> TimedEvent:
        delay_ns = int(self._decided_ns[step]) - self._env.now_ns
        return TimedEvent(self._env, delay_ns, self._priority)
