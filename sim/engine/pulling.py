"""Engines of prefill and decode servers whose decode side fetches the KV, as vLLM's NIXL connector.

A request comes to a decode server when its prompt is computed. The decode server allocates blocks
for the whole prompt and fetches what it lacks. It computes the last token of the prompt again, and
samples the first token that the client sees from it.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from sim.core.batch import Batch, StepOutput
from sim.core.request import Status
from sim.engine.executor import Executor
from sim.engine.handover import HandoverEngine
from sim.engine.polls import Polls, Seen
from sim.engine.records import Decided, RequestRecord
from sim.engine.request import Request
from sim.engine.scheduler import BaseScheduler, Launch


class PullEngine(HandoverEngine):
    """Base class: an engine whose scheduler hears of transfers with the results of steps."""

    def __init__(
        self, scheduler: BaseScheduler[Request], executor: Executor, *, overlaps: bool
    ) -> None:
        super().__init__(scheduler, executor)
        self._polls = Polls(overlaps=overlaps, fills_queue=scheduler.fills_places)
        # The last decision launched nothing, and the next one may only after something happens.
        self._rests = False

    def transfer_failed(self, rid: str) -> None:
        self._polls.note(rid, is_lost=True)

    @property
    def num_waiting(self) -> int:
        """At least 1 if the next decision may launch something, and 0 if it cannot."""
        if self.in_flight:
            return super().num_waiting
        return 0 if self._rests else max(super().num_waiting, 1)

    def begin_step(self, now_ns: int) -> Decided:
        decided = super().begin_step(now_ns)
        launches = decided.batch is not None
        if launches:
            seen = self._polls.step_launched()
        elif self._looks:
            seen = self._polls.nothing_launched()
        else:
            seen = self._polls.nothing_asked()
        over = self._act(seen, now_ns)
        looks_again = self._looks and not self._polls.is_empty
        self._rests = not (launches or seen or decided.preempted or looks_again)
        wakes_ns = self._wakes_ns() if self._rests and not self.in_flight else decided.wakes_ns
        if not over and wakes_ns == decided.wakes_ns:
            return decided
        return Decided(
            decided.batch,
            decided.state,
            [*decided.over, *over],
            wakes_ns,
            decided.preempted,
            decided.waited_ns,
        )

    def idle(self, now_ns: int) -> int | None:
        """As in the base class; a rank that does not rest decides again at once."""
        if not self._rests:
            return None
        wakes_ns = self._wakes_ns()
        return super().idle(now_ns) if wakes_ns is None else wakes_ns

    def end_step(self, batch: Batch, output: StepOutput, now_ns: int) -> Sequence[RequestRecord]:
        records = self.drop_given_up()
        self.scheduler.begin_result()
        records += super().end_step(batch, output, now_ns)
        records += self._act(self._polls.step_ended(), now_ns)
        return records

    def decode_horizon(self) -> int:
        return super().decode_horizon() if self._polls.is_empty else 0

    @property
    def _looks(self) -> bool:
        """Whether the server looks for ends of transfers although it launches nothing."""
        return True

    def _act(self, seen: list[Seen], now_ns: int) -> list[RequestRecord]:
        """Tell the scheduler what was seen; returns records of requests that end by it."""
        raise NotImplementedError

    def _wakes_ns(self) -> int | None:
        """When something happens of itself while the server rests; None: never."""
        return None


class PullPrefillEngine(PullEngine):
    """The engine of a prefill server: computes prompts, and keeps their KV until it is fetched.

    A request ends, with a record of one output token, when its KV has left.

    Attributes:
        sending: requests whose prompts are computed and whose KV has not left yet, by rid.
    """

    def __init__(
        self, scheduler: BaseScheduler[Request], executor: Executor, *, overlaps: bool
    ) -> None:
        super().__init__(scheduler, executor, overlaps=overlaps)
        self.sending: dict[str, Request] = {}
        # Requests whose KV was lost on its way, and the times when it is freed here.
        self._lost: set[str] = set()
        # Whether a request has ended since the last decision.
        self._has_ended = False
        self._leases: list[tuple[int, str]] = []

    @property
    def num_unanswered(self) -> int:
        return len(self.requests) - len(self.sending)

    def give_up(self, rid: str) -> None:
        """Of a request that is being sent, the decode server's answer matters, not this one's."""
        if rid not in self.sending:
            super().give_up(rid)

    def partner_has_room(self, rid: str, num_cached_tokens: int) -> None:
        """The decode server asks for a request's KV; this server need not know."""

    def sent(self, rid: str) -> None:
        """A request's KV has left, or the decode server does not want it."""
        self._polls.note(rid, is_lost=False)

    def dismiss(self, rid: str) -> None:
        """The decode server has ended a request before it fetched the KV, and says so."""
        if rid not in self.sending:
            self.give_up(rid)
        elif rid not in self._lost:
            self.sent(rid)

    def transfer_failed(self, rid: str) -> None:
        if rid in self.sending:
            self._lost.add(rid)
            super().transfer_failed(rid)

    def end_step(self, batch: Batch, output: StepOutput, now_ns: int) -> Sequence[RequestRecord]:
        self._note_expired(now_ns)
        return super().end_step(batch, output, now_ns)

    def begin_step(self, now_ns: int) -> Decided:
        self._note_expired(now_ns)
        decided = super().begin_step(now_ns)
        self._has_ended = False
        return decided

    @property
    def _looks(self) -> bool:
        has_others = len(self.sending) < len(self.requests)
        return self.scheduler.looks_while_sending or has_others or self._has_ended

    def _take_prefill(
        self,
        launch: Launch[Request],
        ended: frozenset[str],
        now_ns: int,
        records: list[RequestRecord],
    ) -> list[Request]:
        """Requests whose prompts are complete keep their KV; none is to be finished now."""
        for request in launch.prefill:
            if request in launch.chunked or request.status is not Status.RUNNING:
                continue
            request.num_generated += 1
            request.first_token_ns = now_ns
            self._has_ended = True
            self.scheduler.hold(request)
            self.sending[request.rid] = request
            self.scheduler.partner.computed(request.rid, request.prompt_len, is_last=True)
        return []

    def _act(self, seen: list[Seen], now_ns: int) -> list[RequestRecord]:
        records: list[RequestRecord] = []
        for rid, is_lost in seen:
            request = self.sending.get(rid)
            if request is None:
                continue
            if is_lost:
                # The decode server cannot say so: the KV stays until its lease ends.
                lease_ns = self.scheduler.lease_end_ns(request.first_token_ns, now_ns)
                heappush(self._leases, (lease_ns, rid))
            else:
                del self.sending[rid]
                self._lost.discard(rid)
                self.scheduler.let_go(request)
                records.append(self._finish(request, now_ns))
        return records

    def _note_expired(self, now_ns: int) -> None:
        while self._leases and self._leases[0][0] <= now_ns:
            self.sent(heappop(self._leases)[1])

    def _wakes_ns(self) -> int | None:
        return self._leases[0][0] if self._leases else None


class PullDecodeEngine(PullEngine):
    """The engine of a decode server."""

    def knows(self, rid: str) -> bool:
        return rid in self.requests or self.scheduler.keeps_room(rid)

    def received(self, rid: str) -> None:
        """A request's KV has arrived; also of one that has ended since its transfer began."""
        self._polls.note(rid, is_lost=False)

    def _act(self, seen: list[Seen], now_ns: int) -> list[RequestRecord]:
        records: list[RequestRecord] = []
        for rid, is_lost in seen:
            request = self.requests.get(rid)
            if self.scheduler.transfer_ended(rid, is_lost=is_lost) and request is not None:
                records.append(self._give_back_unserved(request))
        return records
