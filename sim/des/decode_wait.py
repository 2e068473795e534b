"""A wait over decode steps that decide nothing, unless a request arrives meanwhile."""

import numpy as np
from numpy.typing import NDArray
from simpy.events import EventPriority

from sim.des.clock import Clock, TimedEvent


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
