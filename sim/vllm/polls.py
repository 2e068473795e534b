"""When a vLLM scheduler hears that KV has arrived, has left, or is lost.

The workers look when they have launched a step's kernels. What they have seen comes back with the
step's result. So the decision after that result is the first that knows it.

    time    | decide 1 | step 1 ............| decide 2 | step 2 ...........| decide 3
                  looks ^      KV arrives ^        looks ^                  ^ knows it

An idle server looks all the time, which takes no time here. Under async scheduling a decision that
launches nothing makes a batch, too, which waits in vLLM's queue behind the step in flight: what is
seen then is known right after the next decision (vLLM 0.33.0: `step_with_batch_queue` of
v1/engine/core.py; `post_forward` of v1/worker/gpu/kv_connector.py).
"""

from collections import deque
from typing import NamedTuple


class Seen(NamedTuple):
    """The end of a request's transfer; `is_lost`: it has failed."""

    rid: str
    is_lost: bool


class Polls:
    """What the workers of a server have seen, or will see, and its scheduler does not know yet."""

    def __init__(self, *, overlaps: bool, fills_queue: bool = True) -> None:
        """`fills_queue`: an empty batch waits for the next decision with no step in flight, too."""
        self._overlaps = overlaps
        self._fills_queue = fills_queue
        self._noted: list[Seen] = []
        # Of each step in flight, oldest first.
        self._in_flight: deque[list[Seen]] = deque()
        # Of the empty batch in the queue.
        self._behind: list[Seen] = []

    @property
    def is_empty(self) -> bool:
        return not (self._noted or self._behind or any(self._in_flight))

    def note(self, rid: str, *, is_lost: bool) -> None:
        """A transfer ends now."""
        self._noted.append(Seen(rid, is_lost))

    def step_launched(self) -> list[Seen]:
        """The workers launch a step, and look; returns what the scheduler learns after that."""
        noted, self._noted = self._noted, []
        self._in_flight.append(noted)
        behind, self._behind = self._behind, []
        return behind

    def nothing_launched(self) -> list[Seen]:
        """A decision launched nothing; returns what the scheduler learns after that."""
        noted, self._noted = self._noted, []
        if not self._overlaps:
            return noted
        if self._in_flight:
            self._behind += noted
            return []
        if not (self._fills_queue or self._behind):
            return noted
        behind, self._behind = self._behind, noted
        return behind

    def nothing_asked(self) -> list[Seen]:
        """A server without work takes in the empty batch in the queue, and decides no other one."""
        behind, self._behind = self._behind, []
        return behind

    def step_ended(self) -> list[Seen]:
        """The result of the oldest step is there; returns what the scheduler learns with it."""
        return self._in_flight.popleft()
