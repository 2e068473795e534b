"""The queues of a decode server, whose prompts are computed on another server.

Source: SGLang 0.5.23, `SchedulerDisaggregationDecodeMixin` and `DecodeTransferQueue` in
disaggregation/decode.py. docs/explanation/disaggregation.md has the rules.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from sim.core.request import Status
from sim.sglang.agreement import Agreement, build_agreement
from sim.sglang.policies.policy import QueueView, SchedulePolicy
from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.preallocation_queue import PreallocationQueue
from sim.sglang.scheduler.queues import Queues
from sim.sglang.scheduler.retracted_kv import RetractedKV
from sim.sglang.scheduler.server import SglangServer
from sim.sglang.scheduler.waiting_queue import WaitingQueue


class SeenByStage(NamedTuple):
    """Requests, by rid, that the first stage of a pipeline sees in a pass.

    Attributes:
        retracted: those that may come back from host memory; each is seen in every round once.
        new: those of the preallocation queue.
        lost: those of the preallocation queue whose KV will not come, or that were given up.
        ended: those of the transfer queue whose transfer has ended, in either way.
    """

    retracted: Collection[str]
    new: Collection[str]
    lost: Collection[str]
    ended: Collection[str]


class DecodeQueues(Queues):
    """Of a server that decodes requests whose KV comes from a prefill server.

    A request passes through four places:

        preallocation queue   until there is memory for its KV
        transfer queue        until its KV has arrived; from here on it holds KV and a slot
        waiting queue         until a row of the running batch is free
        running batch         until it ends

    A running request for which the pool has no more pages is retracted: its KV is copied to host
    memory, and it waits, before all others, until there are enough pages again. If host memory is
    full, the request is aborted.

    Attributes:
        preallocation: the preallocation queue, and the retracted requests.
        transferring: the transfer queue, in order of allocation.
        arrived: the waiting queue.
        backups: the KV in host memory.
    """

    def __init__(self, server: SglangServer, waiting: WaitingQueue, policy: SchedulePolicy) -> None:
        super().__init__(server, waiting, None)
        config = self._config = server.config
        self._kv = server.kv
        self._policy = policy
        self.prefills = False
        self.backups = RetractedKV(config)
        self.preallocation = PreallocationQueue(server, self.backups)
        self.transferring: list[SglangRequest] = []
        self.arrived: list[SglangRequest] = []
        # A row whose last token is in flight decodes again, and rows that have finished still count
        # when requests join: `get_next_batch_to_run`, which drops them, is not called.
        server.rules = replace(server.rules, leaves_out_finishing=False, drops_finished_first=False)
        # Of the transfer queue: requests whose KV has arrived. Of it and of the preallocation
        # queue: requests whose KV will not come, or that nobody waits for.
        self._received: set[str] = set()
        self._lost: set[str] = set()
        # Those of them that nobody waits for.
        self._given_up: set[str] = set()
        # What all stages know; None: there is one stage. And of each retracted request, the
        # micro-batch whose turn it was when the first stage saw it first.
        self.agreement: Agreement[SeenByStage] | None = build_agreement(config.micro_batches)
        self._turn_of: dict[str, int] = {}
        self._num_entries = 0
        # Rows that joined in this decision, and the steps in flight without them.
        self._joined: set[str] = set()
        self._num_missed_steps = 0
        self._num_passes = 0

    # ---- requests ------------------------------------------------------------------------------

    def ever_fits(self, prompt_len: int, num_new_tokens: int) -> bool:
        """False if the request would never find memory here (decision record 3)."""
        return self.preallocation.ever_fits(prompt_len, num_new_tokens)

    def enter(self, request: SglangRequest) -> None:
        """A new request joins the preallocation queue; one with output was retracted."""
        if request.rid in self._joined:
            request.num_generated += self._num_missed_steps
        if not request.num_generated:
            request.entered_ns = self.server.now_ns
            self.preallocation.enter(request)
        else:
            self._number(request)
            self.preallocation.enter_again(request)

    def _number(self, request: SglangRequest) -> None:
        """Note when a request entered: requests of the same priority join in this order."""
        self._num_entries += 1
        request.entry = self._num_entries

    def note_received(self, rid: str) -> None:
        """The request's KV has arrived."""
        self._received.add(rid)
        self._note_news()

    def note_failed(self, request: SglangRequest) -> None:
        """The request's KV will not come."""
        if request.status is Status.WAITING or request in self.transferring:
            self._lost.add(request.rid)
            self._note_news()

    def _note_news(self) -> None:
        if self.agreement is not None:
            self.agreement.note_news()

    def abort(self, request: SglangRequest) -> bool:
        """A request without KV here, or whose KV comes, ends when the server looks for it."""
        if self.preallocation.remove_retracted(request):
            return True
        if request in self.arrived:
            self.arrived.remove(request)
            self.server.checkpoint(request, request.seq_len, is_finished=True)
            self.server.release(request)
            return True
        if request in self.preallocation.requests or request in self.transferring:
            self._lost.add(request.rid)
            self._given_up.add(request.rid)
            self._note_news()
        return False

    @property
    def num_waiting(self) -> int:
        return len(self.arrived)

    @property
    def waiting_requests(self) -> Sequence[SglangRequest]:
        return [*self.preallocation.requests, *self.preallocation.retracted]

    @property
    def elsewhere(self) -> Sequence[SglangRequest]:
        return [*self.transferring, *self.arrived]

    # ---- requests that begin to decode -----------------------------------------------------------

    def take_joining(self, now_ns: int) -> Sequence[SglangRequest]:
        """The requests that decode from now on, with the tokens they have.

        `process_decode_queue`, then `_get_new_prebuilt_batch`.
        """
        self.server.now_ns = now_ns
        self._joined.clear()
        self.server.batch.turns.gather()
        self.server.drop_finished()
        if self.agreement is None:
            self._look()
        else:
            self.agreement.send(self._seen())
        if self._config.enable_priority_scheduling:
            view = QueueView(now_ns, self._kv.cache.root, frozenset(), 0, self._rows)
            self.arrived = self._policy.order(self.arrived, view)
        joining = self.arrived[: max(self._num_free_rows, 0)]
        del self.arrived[: len(joining)]
        self._joined.update([request.rid for request in joining])
        for request in joining:
            self._kv.note_received(request.kv)
            self.server.checkpoint(request, request.seq_len)
        return joining

    def _look(self) -> None:
        """`process_decode_queue`: requests that get memory, and those whose KV has arrived."""
        self.arrived += self.preallocation.resume(self._num_active)
        if not self.preallocation.retracted:
            self._num_passes += 1
            if self._polls:
                self._preallocate()
                self._take_arrived()

    def _seen(self) -> SeenByStage:
        """`_pp_pd_get_retract_ids`, `_pp_pd_get_prealloc_ids`, `_pp_pd_get_decode_transferred_ids`.

        They are methods of managers/scheduler_pp_mixin.py.
        """
        turn = self.server.batches.index(self.server.batch)
        retracted = [request.rid for request in self.preallocation.retracted]
        self._turn_of = {rid: self._turn_of.get(rid, turn) for rid in retracted}
        new = [request.rid for request in self.preallocation.requests]
        transferring = [request.rid for request in self.transferring]
        return SeenByStage(
            retracted=[rid for rid in retracted if self._turn_of[rid] == turn],
            new=[rid for rid in new if rid not in self._lost],
            lost=[rid for rid in new if rid in self._lost],
            ended=[rid for rid in transferring if rid in self._lost or rid in self._received],
        )

    def end_turn(self, *, is_idle: bool) -> None:
        """With stages, at the end of a pass: act on what all of them have seen.

        `process_retract_queue`, `process_prealloc_queue` and `process_decode_transfer_queue` in
        managers/scheduler_pp_mixin.py. Of the running requests, they count those of one
        micro-batch: that whose turn it is. `is_idle`: nothing was launched, or is in flight.
        """
        agreement = self.agreement
        if agreement is None:
            return
        agreed = agreement.agreed
        if agreed is not None:
            self.arrived += self.preallocation.resume(self._num_active, agreed.retracted)
            if not self.preallocation.retracted:
                self._preallocate(agreed)
            self._take_arrived(agreed.ended)
        preallocation = self.preallocation
        state = (
            len(preallocation.requests), len(preallocation.retracted),
            len(self.transferring), len(self.arrived), self.server.num_slots_used,
        )  # fmt: skip
        agreement.end_pass(state, is_idle=is_idle)

    @property
    def _polls(self) -> bool:
        """Whether the latest pass looks for free memory, and for KV that has arrived."""
        return self._num_passes % self._config.disaggregation_decode_polling_interval == 0

    @property
    def passes_again(self) -> bool:
        """Of a server that launched nothing: whether its next pass may do more.

        Rows that had finished counted for the last time, or the server has not looked yet.
        """
        looks_later = not (self.preallocation.retracted or self._polls)
        has_some = bool(self.preallocation.requests or self.transferring)
        return self.server.made_room or (looks_later and has_some)

    @property
    def _num_free_rows(self) -> int:
        return self._config.max_running_requests - self.server.batch.num_rows

    @property
    def _num_active(self) -> int:
        """Requests that hold KV; rows that have finished count until the next decode step."""
        return self.server.batch.num_rows + len(self.transferring) + len(self.arrived)

    @property
    def _rows(self) -> list[SglangRequest]:
        """SGLang's running batch, with the rows that have finished."""
        return [*self.server.running.requests, *self.server.batch.ended]

    def _preallocate(self, agreed: SeenByStage | None = None) -> None:
        """`pop_preallocated`: drop what is lost, then allocate KV of new requests."""
        if self._lost:
            gone: Collection[str] = self._lost
            if agreed is not None:
                gone = {*agreed.lost, *self._given_up.intersection(agreed.new)}
            lost = self.preallocation.drop(gone)
            self._forget_lost([request.rid for request in lost])
            self.server.dropped += lost
        self.transferring += self.preallocation.preallocate(
            self._rows,
            self._num_active,
            len(self.transferring),
            None if agreed is None else agreed.new,
        )

    def _forget_lost(self, rids: Collection[str]) -> None:
        self._lost.difference_update(rids)
        self._given_up.difference_update(rids)

    def _take_arrived(self, agreed: Collection[str] | None = None) -> None:
        """`pop_transferred`: requests whose KV has arrived, in the order of their allocation.

        `agreed`: with stages, those that all have seen; None: there is one stage.
        """
        if not (self._received or self._lost):
            return
        staying: list[SglangRequest] = []
        for request in self.transferring:
            if agreed is not None and request.rid not in agreed:
                staying.append(request)
            elif request.rid in self._lost:
                self._forget_lost([request.rid])
                self._received.discard(request.rid)
                self.server.release(request)
                self.server.dropped.append(request)
            elif request.rid in self._received:
                self._received.remove(request.rid)
                request.num_generated = 1  # The prefill server's token comes with the KV.
                self._number(request)
                self.arrived.append(request)
            else:
                staying.append(request)
        self.transferring = staying

    # ---- the step ------------------------------------------------------------------------------

    def begin_decision(self, num_missed_steps: int) -> None:
        self._num_missed_steps = num_missed_steps

    def end_decision(self) -> None:
        decision = self.server.decision
        for request in decision.aborted:
            if request.rid in self._joined and request not in decision.retracted:
                request.num_generated += self._num_missed_steps

    def num_known_outputs(self, request: SglangRequest) -> int:
        """Rows that just joined count one token less until the step in flight is done."""
        missed = self._num_missed_steps if request.rid in self._joined else 0
        return request.num_generated + missed

    def keeps_kv(self, request: SglangRequest) -> bool:
        num_outputs = self.num_known_outputs(request)
        return self.backups.keep(request.rid, request.prompt_len + num_outputs - 1)

    @property
    def waits_for_partner(self) -> bool:
        """What is left waits for KV, or for memory that arriving KV keeps occupied."""
        return bool(self.waiting_requests or self.elsewhere)

    def decoded_again(self, num_steps: int) -> None:
        if not self.preallocation.retracted:
            self._num_passes += num_steps

    @property
    def repeats(self) -> bool:
        if self.arrived and self._num_free_rows > 0:
            return False
        if self.preallocation.retracted:
            return self.preallocation.stays_retracted(self._num_active)
        return not (self._received or self._lost) and self.preallocation.is_stuck(
            self._rows, self._num_active, len(self.transferring)
        )
