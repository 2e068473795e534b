"""What the parts of an engine see of it: its live requests, and how one of them ends.

An engine (`sim.engine.core`) is made of parts: its role, how it takes in results, whose turn it is.
They call it back through this base class, so that no part has to import the engine.
"""

from collections import deque

from mypy_extensions import mypyc_attr

from sim.core.request import Status
from sim.engine.input_queue import InputQueue
from sim.engine.launch import Launch
from sim.engine.records import Decided, RequestRecord
from sim.engine.request import Request
from sim.engine.scheduler import BaseScheduler
from sim.engine.results.token_clock import TokenClock


@mypyc_attr(allow_interpreted_subclasses=True)
class LiveRequests:
    """Base class of the engine.

    Attributes:
        scheduler, kv: the scheduler and its KV memory; drivers use them only in tests and checks.
        in_flight: launches whose results are not known yet, oldest first.
        clock: inter-token latencies so far.
        requests: live requests by rid: submitted, and not finished, rejected or aborted.
        input_queue: submitted requests that the scheduler has not seen yet.
        ending: requests, by rid, that end with their next result although their answers go on:
            their clients gave up, or they have run for too long, or they can never be served.
        stopped_since_batch: rows that were taken out of the running batch since the last launch.
        num_places: steps that may be in flight in a pipeline; 1: this is no pipeline.
    """

    def __init__(
        self, scheduler: BaseScheduler[Request], clock: TokenClock, num_places: int
    ) -> None:
        self.scheduler = scheduler
        self.kv = scheduler.memory
        self.in_flight: deque[Launch[Request]] = deque()
        self.clock = clock
        self.requests: dict[str, Request] = {}
        self.input_queue: InputQueue[Request] = InputQueue(scheduler.poll_interval)
        self.ending: dict[str, Request] = {}
        self.stopped_since_batch: list[str] = []
        self.num_places = num_places

    def decide(self, now_ns: int) -> Decided:
        """One pass of the server's loop: what `begin_step` does, for the role, once or more."""
        raise NotImplementedError

    @property
    def num_missed_steps(self) -> int:
        """Decode steps in flight of a batch in lockstep: rows that join it now are not in them."""
        raise NotImplementedError

    def give_up(self, rid: str) -> None:
        """A request's client has given up; the next decision that polls learns it.

        Some schedulers learn it before that, with the next result (`drop_given_up`).
        """
        raise NotImplementedError

    def abort(self, request: Request, over: list[RequestRecord]) -> None:
        """End a request before its answer is complete, at once or with its next result."""
        raise NotImplementedError

    def finish(self, request: Request, now_ns: int) -> RequestRecord:
        """End a request whose last token, or whose end, has come; returns its record."""
        raise NotImplementedError

    def end_unserved(self, request: Request, status: Status = Status.ABORTED) -> RequestRecord:
        """End a request that holds nothing any more, with an incomplete answer."""
        raise NotImplementedError
