"""An engine's live requests: how they come in, and how they end.

An engine (`sim.engine.core`) is made of parts: its role, how it takes in results, whose turn it is.
They call it back through the base class `LiveRequests`.

The scheduler looks into the input queue when it makes a decision: it *polls*. A server may skip
polls while it decodes, because each costs host time (rule 19 of docs/explanation/sglang.md).
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Generic

from mypy_extensions import mypyc_attr

from sim.core.batch import Executor, ForwardMode
from sim.core.errors import InvariantError
from sim.core.request import RequestSpec, Status
from sim.engine.records import Decided, Launch, RequestRecord
from sim.engine.request import NEVER_NS, OutputTokens, Request, TokenClock
from sim.engine.running_batch import R
from sim.engine.scheduler import NO_LIMITS, BaseScheduler, FrontEndLimits

# What a step of other modes than decode adds to the counter.
_PREFILL_WEIGHT = 1000


class InputQueue(Generic[R]):
    """Requests between their arrival and the poll that receives them.

    A counter grows at each decision: by 1 if the decision before launched a decode step or nothing,
    by 1000 if it launched prefill rows. A decision polls if the counter has reached `interval`,
    which resets the counter. Example with interval 3, after a poll:

        the decision before launched   prefill  decode  decode  decode  decode
        counter                        1000     1       2       3       1
        polls                          yes      -       -       yes     -

    An idle server decides again at once, until it polls. That takes no time here.

    Attributes:
        requests: the requests that were not received yet, in order of arrival.
        given_up: requests whose clients have given up since the last poll, each with the number of
            `requests` that had arrived before.
    """

    def __init__(self, interval: int) -> None:
        self.requests: list[R] = []
        self.given_up: list[tuple[int, R]] = []
        self.has_polled = False
        self._interval = interval
        self._counter = 0
        self._last_mode: ForwardMode | None = None
        self._is_idle = True

    def note_decision(self, mode: ForwardMode | None, *, is_idle: bool) -> None:
        """Note what a decision launched.

        `mode` is that of the launch; None: nothing was launched. With `is_idle` no step is in
        flight, either.
        """
        self._last_mode = mode
        self._is_idle = is_idle

    def poll(self) -> list[R]:
        """Begin a decision; returns the requests that it receives."""
        decodes_or_not = self._last_mode is None or self._last_mode is ForwardMode.DECODE
        self._counter += 1 if decodes_or_not else _PREFILL_WEIGHT
        if self._counter < self._interval and not self._is_idle:
            self.has_polled = False
            return []
        self._counter = 0
        self.has_polled = True
        return self.take()

    @property
    def is_empty(self) -> bool:
        return not (self.requests or self.given_up)

    def take(self) -> list[R]:
        """Remove and return the requests, for a decision that polls."""
        received, self.requests = self.requests, []
        return received

    # ---- fast-forward --------------------------------------------------------------------------

    @property
    def num_unpolled_steps(self) -> int:
        """How many decode steps can be decided before a decision polls."""
        return max(self._interval - self._counter - 1, 0)

    def next_poll(self, step: int) -> int:
        """The first of the next decode steps whose decision polls, at or after `step` (from 0)."""
        first, interval = self.num_unpolled_steps, self._interval
        return first + max(-(-(step - first) // interval), 0) * interval

    def pass_decisions(self, num_steps: int) -> None:
        """Decide `num_steps` decode steps, without requests to receive."""
        since_poll = num_steps - self.num_unpolled_steps - 1
        if since_poll < 0:
            self._counter += num_steps
        else:
            self._counter = since_poll % self._interval


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
        foresees_drafts: steps with drafts may be passed at once: their times are known before.
    """

    def __init__(
        self,
        scheduler: BaseScheduler[Request],
        executor: Executor,
        clock: TokenClock,
        num_places: int,
    ) -> None:
        self.scheduler = scheduler
        self.kv = scheduler.memory
        self._executor = executor
        self.in_flight: deque[Launch[Request]] = deque()
        self.clock = clock
        self.requests: dict[str, Request] = {}
        self.input_queue: InputQueue[Request] = InputQueue(scheduler.poll_interval)
        self.ending: dict[str, Request] = {}
        self.stopped_since_batch: list[str] = []
        self.num_places = num_places
        self.foresees_drafts = True

    def decide(self, now_ns: int) -> Decided:
        """One pass of the server's loop: what `begin_step` does, for the role, once or more."""
        raise NotImplementedError

    @property
    def num_missed_steps(self) -> int:
        """Decode steps in flight of a batch in lockstep: rows that join it now are not in them."""
        raise NotImplementedError

    @property
    def num_unanswered(self) -> int:
        """Requests whose answer is not complete."""
        raise NotImplementedError

    # ---- arrivals ------------------------------------------------------------------------------

    def rejection(
        self, spec: RequestSpec, replica: Sequence["LiveRequests"] = ()
    ) -> RequestRecord | None:
        """The record of a request that this server does not take in; None if it does.

        With `replica`, the engines behind its front end, also that of a request which the front end
        refuses because too many are there.
        """
        if self.scheduler.takes(len(spec.prompt), spec.max_new_tokens):
            limits = self.scheduler.front_end_limits
            if limits == NO_LIMITS or not _front_end_refuses(limits, replica):
                return None
        request = self._new_request(spec, 0)
        request.status = Status.REJECTED
        return RequestRecord(request)

    def submit(self, spec: RequestSpec) -> None:
        """Put a request for which `rejection` returned None into the input queue.

        Raises InvariantError: the request can never be served, or its rid is in use.
        """
        prompt_len, max_new_tokens = len(spec.prompt), spec.max_new_tokens
        if spec.rid in self.requests or not self.scheduler.takes(prompt_len, max_new_tokens):
            raise InvariantError(f"request {spec.rid} was already submitted, or must be rejected")
        request = self._new_request(spec, self.scheduler.token_limit(prompt_len, max_new_tokens))
        if request.end_status is Status.REJECTED:
            self.ending[spec.rid] = request
        self.requests[spec.rid] = request
        self.input_queue.requests.append(request)

    def _new_request(self, spec: RequestSpec, limit: int) -> Request:
        executor, rid = self._executor, spec.rid
        return self.scheduler.new_request(
            spec,
            limit,
            OutputTokens(partial(executor.output_ids, rid), partial(executor.output_part, rid)),
        )

    # ---- giving up -------------------------------------------------------------------------------

    def give_up(self, rid: str) -> None:
        """A request's client has given up; the next decision that polls learns it.

        Some schedulers learn it before that, with the next result (`drop_given_up`).
        """
        request = self.requests.get(rid)
        if request is not None and not self._goes_on_without_client(rid):
            self.input_queue.given_up.append((len(self.input_queue.requests), request))

    def _goes_on_without_client(self, rid: str) -> bool:
        """Whether the server's role ignores that the client of a request gives up."""
        raise NotImplementedError

    def _role_aborts(self, request: Request) -> bool:
        """A request ends early; returns whether the server's role sees to it."""
        raise NotImplementedError

    def drop_given_up(self) -> list[RequestRecord]:
        """Called before a result is taken in; returns records of requests that end without it."""
        if not (self.scheduler.aborts_before_results and self.input_queue.given_up):
            return []
        given_up, self.input_queue.given_up = self.input_queue.given_up, []
        over: list[RequestRecord] = []
        for place, request in given_up:
            if request in self.input_queue.requests:
                self.input_queue.given_up.append((place, request))  # no decision has received it
            else:
                self.abort(request, over)
        return over

    def _receive(self, requests: list[Request], now_ns: int) -> list[RequestRecord]:
        """Take in what has arrived, in order; returns records of requests that end by it."""
        late = self.scheduler.look_for_late(now_ns)
        over: list[RequestRecord] = []
        if not (requests or late or self.input_queue.given_up):
            return over
        given_up, self.input_queue.given_up = self.input_queue.given_up, []
        for number, request in enumerate(requests):
            while given_up and given_up[0][0] <= number:
                self.abort(given_up.pop(0)[1], over)
            self.scheduler.enter(request)
            if self.scheduler.dropped:
                over += [self.end_unserved(r) for r in self.scheduler.take_dropped()]
        for _, request in given_up:
            self.abort(request, over)
        for request in late:
            if request.rid not in self.ending or request.status is Status.WAITING:
                self.abort(request, over)
        return over

    def abort(self, request: Request, over: list[RequestRecord]) -> None:
        """End a request before its answer is complete, at once or with its next result."""
        rid = request.rid
        if self.requests.get(rid) is not request or self._role_aborts(request):
            return
        runs = request.status is Status.RUNNING
        if self.scheduler.abort(request, self.in_flight):
            if runs:
                self.clock.leave(request)
                self.stopped_since_batch.append(rid)
            over.append(self.end_unserved(request))
        else:
            request.end_status = Status.ABORTED
            self.ending[rid] = request

    def finish(self, request: Request, now_ns: int) -> RequestRecord:
        """End a request whose last token, or whose end, has come; returns its record."""
        if request.status is Status.WAITING:
            self.scheduler.withdraw(request)
        else:
            self.scheduler.give_back(request)
            self.scheduler.has_finished_rows |= request.in_running_batch
        self.clock.leave(request)
        if request.rid in self.ending:
            return self.end_unserved(request, request.end_status)
        request.status = Status.FINISHED
        self.scheduler.finished(request, now_ns)
        return self._forget(request, now_ns)

    def end_unserved(self, request: Request, status: Status = Status.ABORTED) -> RequestRecord:
        """End a request that holds nothing any more, with an incomplete answer."""
        request.status = status
        return self._forget(request)

    def _ending_in(self, launch: Launch[Request]) -> set[str]:
        """The requests that end with this launch's result although their answers go on.

        Of a prompt, only the last chunk has a result.
        """
        return {
            rid
            for rid, request in self.ending.items()
            if request in launch.decode
            or (request in launch.prefill and request not in launch.chunked)
        }

    def knows(self, rid: str) -> bool:
        """Whether a request is live, or has left something here that its transfer must end."""
        return rid in self.requests or self.scheduler.keeps_blocks(rid)

    def record(self, rid: str) -> RequestRecord:
        return RequestRecord(self.requests[rid])

    def _forget(self, request: Request, finish_ns: int = NEVER_NS) -> RequestRecord:
        del self.requests[request.rid]
        self.ending.pop(request.rid, None)
        self._executor.forget(request.rid)
        return RequestRecord(request, finish_ns)


def _front_end_refuses(limits: FrontEndLimits, engines: Sequence[LiveRequests]) -> bool:
    """Whether the front end of these engines refuses one more request."""
    max_requests, max_prompt_tokens = limits
    # The engine learns later that a client has given up; the front end does not count it now.
    gone = {request.rid for each in engines for _, request in each.input_queue.given_up}
    if max_requests is not None:
        num_requests = sum([engine.num_unanswered for engine in engines]) - len(gone)
        if num_requests >= max_requests:
            return True
    if max_prompt_tokens is None:
        return False
    # A server may leave tokens of a prompt to another one; the front end does not know.
    prompts = [
        len(request.spec.prompt)
        for each in engines
        for request in each.requests.values()
        if request.first_token_ns == NEVER_NS and request.rid not in gone
    ]
    return sum(prompts) >= max_prompt_tokens
