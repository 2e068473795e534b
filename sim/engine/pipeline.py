"""Pipelines: several steps are in flight, each with requests of its own.

The model is split into stages on different GPUs. While the second stage computes one step, the
first can compute another. But the next token of a request needs its last one, so two steps in
flight have no row in common that decodes. Such a part of the running requests is a *micro-batch*:

    micro-batch 0    decide   in flight ............ take in   decide   in flight ...
    micro-batch 1             decide   in flight ............ take in   decide ...

The waiting queue and the pool belong to all. Chunks of one prompt may be in several steps in
flight: they need only the KV of the chunks before, which each stage has computed by then.

In some families micro-batches take turns and each has a running batch of its own (`Turns`). In
others each row has counters of its own, and a step leaves out the rows that are in flight
(`sim.engine.rows`).
"""

from collections import deque
from collections.abc import Sequence

from sim.engine.live_requests import LiveRequests
from sim.engine.request import Request
from sim.engine.scheduler import BaseScheduler


def decides_again(
    engines: Sequence[LiveRequests], num_taken: int, *, launched: bool, oldest_runs: bool
) -> bool:
    """Whether a pipeline decides the next step before it takes in the oldest result.

    Only if a place is free; a decision that launched nothing takes a place, too. Most schedulers
    decide again only after a decision that launched a step, and while the oldest step runs. One
    that fills its places decides as long as there are any requests. With turns, a result always
    comes first.

    `num_taken` places are taken. `launched`: the last decision launched a step; `oldest_runs`: the
    oldest step has not ended.
    """
    first = engines[0]
    if first.scheduler.takes_turns or num_taken >= first.num_places:
        return False
    if first.scheduler.fills_places:
        return launched or any(engine.requests for engine in engines)
    return launched and oldest_runs


class Turns:
    """Micro-batches that are decided in a fixed order, each when its last result is known."""

    def __init__(self, scheduler: BaseScheduler[Request], num_micro_batches: int) -> None:
        self._scheduler = scheduler
        self._num_micro_batches = num_micro_batches
        # Of the steps in flight, oldest first.
        self._in_flight: deque[int] = deque()
        self._turn = -1

    def next(self) -> None:
        """The next micro-batch is decided. At least one must not be in flight."""
        self._turn = (self._turn + 1) % self._num_micro_batches
        self._scheduler.use_micro_batch(self._turn)

    def launched(self) -> None:
        """The micro-batch whose turn it is has launched a step."""
        self._in_flight.append(self._turn)

    def return_to_oldest(self) -> None:
        """The result of the oldest step in flight is taken in."""
        self._scheduler.use_micro_batch(self._in_flight.popleft())
