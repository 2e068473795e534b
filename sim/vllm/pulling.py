"""Roles of vLLM's servers whose scheduler hears of KV on its way with the results of steps.

Prefill and decode servers: a decode server pulls KV, as with the NIXL connector. Any server may
keep KV in CPU memory, too.

A request comes to a decode server when its prompt is computed. The decode server allocates blocks
for the whole prompt and fetches what it lacks. It computes the last token of the prompt again, and
samples the first token that the client sees from it.

The scheduler hears that KV has arrived, has left, or is lost with the results of steps. The workers
look when they have launched a step's kernels. What they have seen comes back with the step's
result. So the decision after that result is the first that knows it.

    time    | decide 1 | step 1 ............| decide 2 | step 2 ...........| decide 3
                  looks ^      KV arrives ^        looks ^                  ^ knows it

An idle server looks all the time, which takes no time here. Under async scheduling a decision that
launches nothing makes a batch, too, which waits in vLLM's queue behind the step in flight: what is
seen then is known right after the next decision (vLLM 0.33.0: `step_with_batch_queue` of
v1/engine/core.py; `post_forward` of v1/worker/gpu/kv_connector.py).
"""

from collections import deque
from heapq import heappop, heappush
from itertools import chain
from typing import NamedTuple

from sim.core.batch import StepOutput
from sim.core.request import Status
from sim.engine.parts import Role
from sim.engine.records import Decided, RequestRecord
from sim.engine.request import Request
from sim.vllm.offload.copies import CopyJob
from sim.vllm.offload.role import Offload


class Seen(NamedTuple):
    """The end of a request's transfer, or of a copy.

    Attributes:
        rid: the request.
        is_lost: the transfer has failed.
        job: a copy between the GPU and CPU memory; None: it is a transfer between servers.
    """

    rid: str
    is_lost: bool
    job: CopyJob | None = None


class Polls:
    """What the workers of a server have seen, or will see, and its scheduler does not know yet.

    Attributes:
        overlaps: a step is decided while the one before it runs.
    """

    def __init__(self, *, overlaps: bool, fills_queue: bool = True) -> None:
        """`fills_queue`: an empty batch waits for the next decision with no step in flight, too."""
        self.overlaps = overlaps
        self._fills_queue, self._has_empty = fills_queue, False
        self._noted: list[Seen] = []
        # Of each step in flight, oldest first.
        self._in_flight: deque[list[Seen]] = deque()
        # Of the empty batch in the queue, if there is one.
        self._behind: list[Seen] = []
        # The list of what was launched last, or of its empty batch: ends up to a time belong to it.
        self._latest, self._until_ns = self._noted, -1

    @property
    def is_empty(self) -> bool:
        return not (self._noted or self._behind or any(self._in_flight))

    def all(self) -> list[Seen]:
        return [*self._noted, *self._behind, *chain.from_iterable(self._in_flight)]

    def note(self, end: Seen, now_ns: int = 1 << 62) -> None:
        """Something has ended; the workers see it when they look next."""
        (self._noted if now_ns > self._until_ns else self._latest).append(end)

    def looks_late(self, until_ns: int) -> None:
        """For what was launched last, or for its empty batch, the workers look at this time only.

        For example, a step that waits for copies is launched when they have ended.
        """
        self._until_ns = until_ns

    def step_launched(self) -> list[Seen]:
        """The workers launch a step, and look; returns what the scheduler learns after that."""
        noted = self._latest = self._noted
        self._noted = []
        self._in_flight.append(noted)
        return self.nothing_asked()

    def nothing_launched(self) -> list[Seen]:
        """A decision launched nothing; returns what the scheduler learns after that."""
        noted, self._noted = self._noted, []
        self._latest = self._noted
        if not self.overlaps:
            return noted
        if self._in_flight:
            self._behind += noted
            self._latest, self._has_empty = self._behind, True
            return []
        if not (self._fills_queue or self._has_empty):
            return noted
        behind, self._behind = self._behind, noted
        self._latest = self._behind
        return behind

    def nothing_asked(self) -> list[Seen]:
        """A server without work takes in the empty batch in the queue, and decides no other one."""
        behind, self._behind, self._has_empty = self._behind, [], False
        return behind

    def step_ended(self) -> list[Seen]:
        """The result of the oldest step is there; returns what the scheduler learns with it."""
        return self._in_flight.popleft()


class PlacedPolls(Polls):
    """The same in a pipeline, where each decision takes a place in vLLM's queue, in order."""

    def __init__(self) -> None:
        super().__init__(overlaps=True)

    def step_launched(self) -> list[Seen]:
        noted = self._latest = self._noted
        self._noted = []
        self._in_flight.append(noted)
        return []

    def nothing_launched(self) -> list[Seen]:
        return self.step_launched()

    def nothing_asked(self) -> list[Seen]:
        self._in_flight.append([])
        return []


class Polling(Role):
    """The role of a server whose scheduler hears of transfers or copies with results of steps.

    A server without requests goes on deciding until all copies have ended, those to and from a
    tier below CPU memory included (`has_pending_push_work`, v1/core/sched/scheduler.py). Before
    version 0.33.0 it does not, and learns of their ends when it has requests again.

    Attributes:
        offload: copies between the GPU and CPU memory; None: there are none.
    """

    def __init__(self, polls: Polls, offload: Offload | None = None) -> None:
        super().__init__()
        self.offload = offload
        self.polls_at_steps = self.waits_without_step = offload is not None
        self._polls = polls
        # Requests are shared; the latest decision launched nothing, and workers look after copies.
        self._is_shared = self._looks_late = False
        # The last decision launched nothing, and the next one may only after something happens.
        self._rests = False

    # ---- the moments of a step -----------------------------------------------------------------

    def step_ends(self, end_ns: int) -> None:
        if self.offload is not None:
            self.offload.step_ends(end_ns)

    def begin_step(self, now_ns: int) -> Decided:
        over: list[RequestRecord] = []
        if self._looks_late:
            self._looks_late = False
            over = self._act(self._polls.nothing_launched(), now_ns)
        if self.offload is not None:
            self.offload.begin_decision(now_ns, has_requests=bool(self.engine.requests))
        decided = self.engine.decide(now_ns)
        launches = decided.batch is not None
        waited_ns = self._work(now_ns, launches=launches)
        seen: list[Seen] = []
        if launches:
            seen = self._polls.step_launched()
        elif self._is_shared and waited_ns and not self._polls.overlaps:
            self._looks_late = True
        elif self._looks:
            seen = self._polls.nothing_launched()
        else:
            seen = self._polls.nothing_asked()
        over += self._act(seen, now_ns + waited_ns)
        looks_again = self._looks_late or (self._looks and not self._polls.is_empty)
        has_work = self.offload is not None and self.offload.has_work
        self._rests = not (launches or seen or decided.preempted or looks_again or has_work)
        if waited_ns and not self._looks_late:
            self._polls.looks_late(now_ns + waited_ns)
        if waited_ns:
            decided = decided.waiting(waited_ns)
        if self._rests and not self.engine.in_flight:
            decided = decided.waking(self.wakes_ns)
        return decided.with_records([*decided.over, *over]) if over else decided

    def begin_result(self, output: StepOutput, now_ns: int) -> None:
        self.scheduler.begin_result()

    def result_taken(self, now_ns: int, records: list[RequestRecord]) -> None:
        records += self._act(self._polls.step_ended(), now_ns)

    def nothing_came(self, now_ns: int) -> None:
        self._act(self._polls.step_ended(), now_ns)

    # ---- questions -----------------------------------------------------------------------------

    def num_launchable(self, num_waiting: int) -> int:
        """At least 1 if the next decision may launch something, and 0 if it cannot."""
        if self.engine.in_flight:
            return num_waiting
        return 0 if self._rests else max(num_waiting, 1)

    @property
    def has_news(self) -> bool:
        return not self._polls.is_empty

    @property
    def decides_again(self) -> bool:
        return not self._rests

    @property
    def wakes_ns(self) -> int | None:
        if self.offload is None:
            return None
        return self.offload.next_ns(has_requests=bool(self.engine.requests))

    @property
    def _looks(self) -> bool:
        """Whether the server looks for ends of transfers although it launches nothing."""
        return bool(self.engine.requests) or self._goes_on

    @property
    def _goes_on(self) -> bool:
        return self.offload is not None and self.offload.goes_on

    def _work(self, now_ns: int, *, launches: bool) -> int:
        """What the workers do when they get a step; returns how long it waits for them."""
        if self.offload is None:
            return 0
        waited_ns, ended = self.offload.work(now_ns, self.engine.requests, launches=launches)
        for job in ended:
            self._polls.note(Seen(job.rid, is_lost=False, job=job))
        return waited_ns

    def _act(self, seen: list[Seen], now_ns: int) -> list[RequestRecord]:
        """Tell the scheduler what was seen; returns records of requests that end by it."""
        transfers = [each for each in seen if each.job is None]
        copied: list[str] = []
        if self.offload is not None:
            jobs = [each.job for each in seen if each.job is not None]
            sending = self.sending.keys() - {each.rid for each in transfers if not each.is_lost}
            copied = self.offload.ended(jobs, now_ns, sending)
        # What has arrived is seen before what has left.
        records = [] if self.keeps_prompts else self._act_on_transfers(transfers, now_ns)
        for rid in copied:
            self.scheduler.transfer_ended(rid, is_lost=False)
        return self._act_on_transfers(transfers, now_ns) if self.keeps_prompts else records

    def _act_on_transfers(self, seen: list[Seen], now_ns: int) -> list[RequestRecord]:
        """The same for transfers between servers."""
        return []


class Pull(Polling):
    """Base class: the role of a server that shares its requests with one of another role."""

    def __init__(self, polls: Polls, offload: Offload | None = None) -> None:
        super().__init__(polls, offload)
        self._is_shared = True

    def transfer_failed(self, rid: str) -> None:
        self._polls.note(Seen(rid, is_lost=True), self.now_ns)

    @property
    def unseen(self) -> frozenset[str]:
        return frozenset([each.rid for each in self._polls.all() if each.job is None])


class PullPrefill(Pull):
    """Of a prefill server: computes prompts, and keeps their KV until it is fetched.

    A request ends, with a record of one output token, when its KV has left. Before version 0.33.0 a
    victim whose token was in flight ends with that token, without KV (`drops_victims_tokens`).
    """

    def __init__(self, polls: Polls, offload: Offload | None = None) -> None:
        super().__init__(polls, offload)
        self.keeps_prompts = True
        # Requests whose KV was lost on its way, and the times when it is freed here.
        self._lost: set[str] = set()
        self._leases: list[tuple[int, str]] = []
        # Whether a request has ended since the last decision.
        self._has_ended = False

    # ---- what the driver tells -----------------------------------------------------------------

    def sent(self, rid: str) -> None:
        """A request's KV has left, or the decode server does not want it."""
        self._polls.note(Seen(rid, is_lost=False), self.now_ns)

    def dismiss(self, rid: str) -> None:
        """The decode server has ended a request before it fetched the KV, and says so."""
        if rid not in self.sending:
            self.engine.give_up(rid)
        elif rid not in self._lost:
            self.sent(rid)

    def transfer_failed(self, rid: str) -> None:
        if rid in self.sending:
            self._lost.add(rid)
            super().transfer_failed(rid)

    # ---- the moments of a step -----------------------------------------------------------------

    def begin_step(self, now_ns: int) -> Decided:
        self._note_expired(now_ns)
        decided = super().begin_step(now_ns)
        self._has_ended = False
        return decided

    def begin_result(self, output: StepOutput, now_ns: int) -> None:
        self._note_expired(now_ns)
        super().begin_result(output, now_ns)

    def prompt_computed(self, request: Request, now_ns: int, records: list[RequestRecord]) -> None:
        request.num_generated += 1
        request.first_token_ns = now_ns
        self._has_ended = True
        if request.status is Status.WAITING:  # a victim: its KV is gone
            records.append(self.engine.finish(request, now_ns))
            return
        self.scheduler.hold(request)
        self.sending[request.rid] = request
        self.scheduler.partner.computed(request.rid, request.prompt_len, is_last=True)

    def result_taken(self, now_ns: int, records: list[RequestRecord]) -> None:
        """Requests that have ended by now were victims: the others end when their KV has left."""
        self._has_ended |= any(record.status is Status.FINISHED for record in records)
        super().result_taken(now_ns, records)

    def goes_on_without_client(self, rid: str) -> bool:
        """Of a request that is being sent, the decode server's answer matters, not this one's."""
        return rid in self.sending

    @property
    def wakes_ns(self) -> int | None:
        copied_ns = super().wakes_ns
        if not self._leases:
            return copied_ns
        leased_ns = self._leases[0][0]
        return leased_ns if copied_ns is None else min(leased_ns, copied_ns)

    @property
    def _looks(self) -> bool:
        has_others = len(self.sending) < len(self.engine.requests) or self._goes_on
        return self.scheduler.looks_while_sending or has_others or self._has_ended

    def _act_on_transfers(self, seen: list[Seen], now_ns: int) -> list[RequestRecord]:
        records: list[RequestRecord] = []
        for rid, is_lost, _ in seen:
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
                records.append(self.engine.finish(request, now_ns))
        return records

    def _note_expired(self, now_ns: int) -> None:
        while self._leases and self._leases[0][0] <= now_ns:
            self._polls.note(Seen(heappop(self._leases)[1], is_lost=False), now_ns)


class PullDecode(Pull):
    """Of a decode server."""

    @property
    def _looks(self) -> bool:
        return True

    def received(self, rid: str) -> None:
        """A request's KV has arrived; also of one that has ended since its transfer began."""
        self._polls.note(Seen(rid, is_lost=False), self.now_ns)

    def _act_on_transfers(self, seen: list[Seen], now_ns: int) -> list[RequestRecord]:
        records: list[RequestRecord] = []
        for rid, is_lost, _ in seen:
            request = self.engine.requests.get(rid)
            if self.scheduler.transfer_ended(rid, is_lost=is_lost) and request is not None:
                records.append(self.engine.end_unserved(request))
        return records
