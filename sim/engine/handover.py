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

    def join(self, rid: str, num_outputs: int, num_missed_steps: int) -> bool:
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
        self._sent: list[str] = []
        # Cached prefixes, in tokens, that may be sent when the step in flight has ended.
        self._cached: list[tuple[str, int]] = []

    def partner_has_room(self, rid: str, num_cached_tokens: int) -> None:
        """The decode server has allocated a request's KV; it lacks all but the first tokens."""
        request = self.requests.get(rid)
        if request is not None:
            self.scheduler.note_room(request)

    def sent(self, rid: str) -> None:
        """A request's KV has left this server."""
        self._sent.append(rid)

    def transfer_failed(self, rid: str) -> None:
        request = self.sending.get(rid)
        if request is not None:
            self.ending[rid] = request
            self._sent.append(rid)

    @property
    def num_waiting(self) -> int:
        """0 while KV is being sent: the next decision may have to wait until memory is freed."""
        return 0 if self.sending else super().num_waiting

    def _before_decision(self, now_ns: int, over: list[RequestRecord]) -> None:
        if not self.in_flight:
            self._free_sent(now_ns, over)

    def begin_step(self, now_ns: int) -> Decided:
        decided = super().begin_step(now_ns)
        if decided.batch is not None:
            # SGLang 0.5.23, `maybe_send_cached_prefix_chunk`: what the device holds already is sent
            # at once, or when the step has ended that may still write it.
            launch = self.in_flight[-1]
            self._cached += [(r.rid, r.prefix_len - r.loaded_len) for r in launch.prefill]
            if len(self.in_flight) == 1:
                self._announce_cached()
        return decided

    def _announce_cached(self) -> None:
        cached, self._cached = self._cached, []
        for rid, num_tokens in cached:
            if num_tokens:
                self.partner.computed(rid, num_tokens, is_last=False)

    def end_step(self, batch: Batch, output: StepOutput, now_ns: int) -> Sequence[RequestRecord]:
        self._announce_cached()
        records = list(super().end_step(batch, output, now_ns))
        self._free_sent(now_ns, records)
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
                records.append(self._finish(request, now_ns))
            else:
                request.num_generated += 1
                request.first_token_ns = now_ns
                self.scheduler.prefill_computed(request)
                request.chunk_computed()
                self.scheduler.hold(request)
                self.sending[rid] = request
                self.scheduler.partner.computed(rid, request.prompt_len, is_last=True)
        return []

    def _free_sent(self, now_ns: int, records: list[RequestRecord]) -> None:
        """End the requests whose KV has left."""
        if not self._sent:
            return
        sent, self._sent = self._sent, []
        for rid in sent:
            request = self.sending.pop(rid, None)
            if request is not None:
                self.scheduler.let_go(request)
                records.append(self._finish(request, now_ns))

    def _abort(self, request: Request, over: list[RequestRecord]) -> None:
        if self.sending.pop(request.rid, None) is not None:
            self.scheduler.let_go(request)
            self.ending[request.rid] = request
            over.append(self._finish(request, NEVER_NS))
        else:
            super()._abort(request, over)


class DecodeEngine(HandoverEngine):
    """The engine of a decode server: takes requests whose prompts another server has computed."""

    def __init__(self, scheduler: BaseScheduler[Request], executor: JoiningExecutor) -> None:
        super().__init__(scheduler, executor)
        self._generator = executor
        # Rows that joined while a step without them was in flight.
        self._joined: list[Request] = []
        self._failed: list[Request] = []

    def received(self, rid: str) -> None:
        """A request's KV has arrived."""
        request = self.requests.get(rid)
        if request is not None:
            self.scheduler.note_received(request)

    def transfer_failed(self, rid: str) -> None:
        request = self.requests.get(rid)
        if request is not None:
            self._failed.append(request)

    def _before_decision(self, now_ns: int, over: list[RequestRecord]) -> None:
        """Give requests that can decode now their first token, which the prefill server drew."""
        failed, self._failed = self._failed, []
        for request in failed:
            self._abort(request, over)
        decodes = bool(self.in_flight) and self.in_flight[-1].mode is not ForwardMode.EXTEND
        num_missed_steps = int(decodes)
        joining: list[Request] = []
        for request in self.scheduler.take_joining(now_ns):
            if request.first_token_ns == NEVER_NS:
                request.first_token_ns = request.last_token_ns = now_ns
            is_over = self._generator.join(request.rid, request.num_generated, num_missed_steps)
            if is_over or request.num_generated >= request.max_new_tokens:
                over.append(self._finish(request, now_ns))
            else:
                joining.append(request)
        if joining:
            self.scheduler.running.append(joining, num_missed_steps=num_missed_steps)
            self._joined += joining
            if not decodes:
                self._start_clocks()

    def decode_horizon(self) -> int:
        return 0 if self._failed else super().decode_horizon()

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
