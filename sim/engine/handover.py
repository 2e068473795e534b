"""Engines of servers that only prefill, or only decode, and what they tell each other.

A request's prompt is computed on a prefill server and its answer on a decode server. The driver
carries messages and KV between the two, and takes time for it:

    prefill server        driver                  decode server
                    <- partner_has_room <-        room_made        KV for the prompt is allocated
    computed        ->  transfer of a chunk       (where it is announced before the prefill)
    computed (last) ->  transfer of the rest
    sent            <-  it has left
                        it has arrived ->         received         the request decodes

What the driver tells an engine is noted at once. The engine acts on it where a real server polls.
"""

from collections.abc import Sequence
from typing import Protocol

from sim.core.batch import Batch, ForwardMode, StepOutput
from sim.core.request import Status
from sim.engine.core import EngineCore
from sim.engine.executor import Executor
from sim.engine.partner import Partner
from sim.engine.records import Decided, RequestRecord
from sim.engine.request import NEVER_NS, Request
from sim.engine.scheduler import BaseScheduler, Launch


class JoiningExecutor(Executor, Protocol):
    """An executor whose requests may begin with tokens that another server has generated."""

    def join(
        self, rid: str, num_outputs: int, num_missed_steps: int, *, is_back: bool = False
    ) -> bool:
        """A request begins to decode: see `ScriptedExecutor.join`."""


class HandoverEngine(EngineCore):
    """Base class: the engine of a server that shares its requests with a server of another role."""

    @property
    def partner(self) -> Partner:
        return self.scheduler.partner

    @partner.setter
    def partner(self, partner: Partner) -> None:
        self.scheduler.partner = partner

    def transfer_failed(self, rid: str) -> None:
        """The KV of a request is lost on its way: the request is given up."""
        raise NotImplementedError

    def partner_has_room(self, rid: str, num_cached_tokens: int) -> None:
        """Of a prefill server: the decode server has allocated a request's KV.

        It lacks all but the first `num_cached_tokens` tokens.
        """
        raise NotImplementedError

    def dismiss(self, rid: str) -> None:
        """Of a prefill server: the decode server has ended a request early, and wants no KV."""
        self.give_up(rid)

    def sent(self, rid: str) -> None:
        """Of a prefill server: a request's KV has left it."""
        raise NotImplementedError

    def received(self, rid: str) -> None:
        """Of a decode server: a request's KV has arrived."""
        raise NotImplementedError


class PrefillEngine(HandoverEngine):
    """The engine of a prefill server: computes prompts, and keeps their KV until it is sent.

    A request ends, with a record of one output token, when its KV has left. The token itself is
    the decode server's to show.

    Attributes:
        sending: requests whose prompts are computed and whose KV has not left yet, by rid.
    """

    def __init__(self, scheduler: BaseScheduler[Request], executor: Executor) -> None:
        super().__init__(scheduler, executor)
        self.sending: dict[str, Request] = {}
        # Requests whose KV has left, or is lost, since the server last looked.
        self._sent: set[str] = set()
        self._failed: set[str] = set()
        # It has looked since the last decision.
        self._has_looked = False
        # Requests whose prompts are partly cached, with the number of cached tokens. They are in
        # the list from the launch in which they begin to the end of the step before it.
        self._cached: list[tuple[str, int]] = []

    def partner_has_room(self, rid: str, num_cached_tokens: int) -> None:
        """The decode server has allocated a request's KV; it lacks all but the first tokens."""
        request = self.requests.get(rid)
        if request is not None:
            self.scheduler.note_room(request)

    def sent(self, rid: str) -> None:
        """A request's KV has left this server."""
        self._sent.add(rid)

    def transfer_failed(self, rid: str) -> None:
        self._failed.add(rid)

    @property
    def num_waiting(self) -> int:
        """0 while KV is being sent: the next decision may have to wait until memory is freed."""
        return 0 if self.sending else super().num_waiting

    def _before_decision(self, now_ns: int, over: list[RequestRecord]) -> None:
        self.scheduler.take_ready(self._failed)
        if self._failed:
            self._drop_failed(over)

    def begin_step(self, now_ns: int) -> Decided:
        """As in the base class. A server looks for KV that has left at the end of each pass.

        A pass ends with a result, if one is due, and with its decision otherwise.
        """
        over: list[RequestRecord] = []
        if self.in_flight and not self._has_looked:
            self._free_sent(now_ns, over)
        self._has_looked = False
        decided = super().begin_step(now_ns)
        if decided.batch is None and not self.in_flight and (self._sent or self._failed):
            over += decided.over
            self._free_sent(now_ns, over)
            decided = super().begin_step(now_ns)
        return _with_records(decided, [*over, *decided.over])

    def _describe(self, launch: Launch[Request]) -> Batch:
        """Say what is cached of prompts that begin; the step before may still write a part."""
        if self.scheduler.sends_cached_first and not any(r.loaded_len for r in launch.prefill):
            for request in launch.prefill:
                if 0 < request.prefix_len == request.cached_tokens:
                    self._cached.append((request.rid, request.prefix_len))
            if len(self.in_flight) == 1:
                self._announce_cached()
        return super()._describe(launch)

    def _announce_cached(self) -> None:
        cached, self._cached = self._cached, []
        for rid, num_tokens in cached:
            self.scheduler.partner.computed(rid, num_tokens, is_last=False)

    def end_step(self, batch: Batch, output: StepOutput, now_ns: int) -> Sequence[RequestRecord]:
        if self._cached:
            self._announce_cached()
        records = list(super().end_step(batch, output, now_ns))
        self._free_sent(now_ns, records)
        self._has_looked = True
        return records

    def _take_prefill(
        self,
        launch: Launch[Request],
        ended: frozenset[str],
        now_ns: int,
        records: list[RequestRecord],
    ) -> list[Request]:
        """Say what was computed; a request whose prompt is complete keeps its KV."""
        newest = self.in_flight[-1].prefill if self.in_flight else []
        for request in launch.prefill:
            if request.status is not Status.RUNNING:
                continue
            rid = request.rid
            if request in launch.chunked:
                # Under overlap, `extend_end` may be that of the next chunk already.
                end = request.prefix_len if request in newest else request.extend_end
                self.scheduler.partner.computed(rid, self.kv.floor_page(end), is_last=False)
            elif rid in self.ending:
                self.scheduler.discard(request)
                records.append(self._give_back_unserved(request, request.end_status))
            else:
                request.num_generated += 1
                request.first_token_ns = now_ns
                self.scheduler.prefill_computed(request)
                request.chunk_computed()
                self.scheduler.hold(request)
                self.sending[rid] = request
                self.scheduler.partner.computed(rid, request.prompt_len, is_last=True)
        return []

    def _drop_failed(self, over: list[RequestRecord]) -> None:
        """End the requests that wait for something that failed; those in a batch go on with it."""
        unseen = [request.rid for request in self.input_queue.requests]
        for rid in sorted(self._failed):
            request = self.requests.get(rid)
            if request is not None and request.status is Status.WAITING and rid not in unseen:
                self._abort(request, over)
        self._failed = {rid for rid in self._failed if rid in self.requests}

    def _free_sent(self, now_ns: int, records: list[RequestRecord]) -> None:
        """End the requests whose KV has left, or need not leave any more, in order of prefill."""
        if not (self._sent or self._failed):
            return
        for rid, request in list(self.sending.items()):
            if rid in self._failed:
                self.ending[rid] = request
            elif rid not in self._sent:
                continue
            self._failed.discard(rid)
            del self.sending[rid]
            self.scheduler.let_go(request)
            records.append(self._finish(request, now_ns))
        self._sent.clear()

    def _abort(self, request: Request, over: list[RequestRecord]) -> None:
        if request.rid in self.sending:
            self._failed.add(request.rid)  # Found when the server looks for KV that has left.
        else:
            super()._abort(request, over)


class DecodeEngine(HandoverEngine):
    """The engine of a decode server: takes requests whose prompts another server has computed."""

    def __init__(self, scheduler: BaseScheduler[Request], executor: JoiningExecutor) -> None:
        super().__init__(scheduler, executor)
        self._generator = executor
        # Rows that joined while a step without them was in flight; and rows that have stopped, as
        # the batch in flight says.
        self._joined: list[Request] = []
        self._stopped: frozenset[str] = frozenset()

    def received(self, rid: str) -> None:
        """A request's KV has arrived."""
        request = self.requests.get(rid)
        if request is not None:
            self.scheduler.note_received(request)

    def transfer_failed(self, rid: str) -> None:
        request = self.requests.get(rid)
        if request is not None:
            self.scheduler.note_failed(request)

    def _before_decision(self, now_ns: int, over: list[RequestRecord]) -> None:
        """Give requests that can decode now their first token, which the prefill server drew."""
        decodes = bool(self.in_flight) and self.in_flight[-1].mode is not ForwardMode.EXTEND
        num_missed_steps = int(decodes)
        joining: list[Request] = []
        taken = self.scheduler.take_joining(now_ns)
        over += [self._give_back_unserved(request) for request in self.scheduler.take_dropped()]
        for request in taken:
            if request.first_token_ns == NEVER_NS:
                request.first_token_ns = request.last_token_ns = now_ns
            rid = request.rid
            if rid in self._stopped_since_batch:
                self._stopped_since_batch.remove(rid)
            is_over = self._generator.join(
                rid, request.num_generated, num_missed_steps, is_back=rid in self._stopped
            )
            if is_over or request.num_generated >= request.max_new_tokens:
                over.append(self._finish(request, now_ns))
            else:
                joining.append(request)
        if joining:
            self.scheduler.running.append(joining, num_missed_steps=num_missed_steps)
            self._joined += joining
            if not decodes:
                self._start_clocks()

    def begin_step(self, now_ns: int) -> Decided:
        """As in the base class. A server that launches nothing makes the next pass at once."""
        decided = super().begin_step(now_ns)
        over = list(decided.over)
        while decided.batch is None and not self.in_flight:
            if not (decided.over or self.scheduler.passes_again):
                break
            decided = super().begin_step(now_ns)
            over += decided.over
        self._stopped = frozenset(() if decided.batch is None else decided.batch.stopped_rids)
        return _with_records(decided, over)

    def end_step(self, batch: Batch, output: StepOutput, now_ns: int) -> Sequence[RequestRecord]:
        records = super().end_step(batch, output, now_ns)
        self._start_clocks()
        return records

    def _start_clocks(self) -> None:
        """Measure the gaps of rows that joined, from their last token to the next step's."""
        joined, self._joined = self._joined, []
        for request in joined:
            if request.status is Status.RUNNING and request.in_running_batch:
                self.clock.resume(request)


def _with_records(decided: Decided, over: list[RequestRecord]) -> Decided:
    """What was decided, with the records of all passes."""
    if len(over) == len(decided.over):
        return decided
    preempted, waited_ns = decided.preempted, decided.waited_ns
    return Decided(decided.batch, decided.state, over, decided.wakes_ns, preempted, waited_ns)
