"""The queues of a decode server, whose prompts are computed on another server.

Source: SGLang 0.5.23, `SchedulerDisaggregationDecodeMixin` and `DecodeTransferQueue` in
disaggregation/decode.py. docs/explanation/disaggregation.md has the rules.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from sim.core.request import Status
from sim.sglang.policies.policy import QueueView, SchedulePolicy
from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.roles.preallocation_queue import PreallocationQueue, RetractedKV
from sim.sglang.scheduler.roles.prefill_server import DecodeStages, SeenByStage
from sim.sglang.scheduler.roles.transfer_queue import TransferQueue, build_restores
from sim.sglang.scheduler.server import SglangServer
from sim.sglang.scheduler.waiting.queue import Queues, WaitingQueue


class DecodeQueues(Queues):
    """Of a server that decodes requests whose KV comes from a prefill server.

    A request passes through four places:

        preallocation queue   until there is memory for its KV
        transfer queue        until its KV has arrived, and what host memory has of its prompt is
                              loaded; from here on it holds KV and a slot
        waiting queue         until a row of the running batch is free
        running batch         until it ends

    A running request for which the pool has no more pages is retracted: its KV is copied to host
    memory, and it waits, before all others, until there are enough pages again. If host memory is
    full, the request is aborted.

    Attributes:
        arrived: the waiting queue.
        backups: the KV of retracted requests in host memory.
        restores: what is loaded for the transfer queue from host memory; None: there is none.
        stages: what the stages of a pipeline agree on; None: there is one stage.
    """

    def __init__(self, server: SglangServer, waiting: WaitingQueue, policy: SchedulePolicy) -> None:
        super().__init__(server, waiting, None)
        config = self._config = server.config
        self._kv = server.kv
        self._policy = policy
        self.prefills = False
        self.backups = RetractedKV(config)
        self.restores = build_restores(server)
        self.preallocation = PreallocationQueue(server, self.backups, self.restores)
        self.transfers = TransferQueue(server, self.restores)
        self.arrived: list[SglangRequest] = []
        # A row whose last token is in flight decodes again, and rows that have finished still count
        # when requests join: `get_next_batch_to_run`, which drops them, is not called.
        server.rules = replace(server.rules, leaves_out_finishing=False, drops_finished_first=False)
        is_staged = config.micro_batches > 1
        self.stages = DecodeStages(config.micro_batches) if is_staged else None
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
        self.transfers.received.add(rid)
        self._note_news()

    def note_failed(self, request: SglangRequest) -> None:
        """The request's KV will not come."""
        if request.status is Status.WAITING or request in self.transfers.requests:
            self.transfers.lost.add(request.rid)
            self._note_news()

    def _note_news(self) -> None:
        if self.stages is not None:
            self.stages.agreement.note_news()

    def abort(self, request: SglangRequest) -> bool:
        """Whether the request is gone. One whose KV has not all come ends at a later poll."""
        if self.preallocation.remove_retracted(request):
            return True
        if request in self.arrived:
            self.arrived.remove(request)
            self.server.checkpoint(request, request.seq_len, is_finished=True)
            self.server.release(request)
            return True
        if request in self.preallocation.requests or request in self.transfers.requests:
            self.transfers.lost.add(request.rid)
            self.transfers.given_up.add(request.rid)
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
        return [*self.transfers.requests, *self.arrived]

    # ---- requests that begin to decode -----------------------------------------------------------

    def take_joining(self, now_ns: int) -> Sequence[SglangRequest]:
        """The requests that decode from now on, with the tokens they have.

        `process_decode_queue`, then `_get_new_prebuilt_batch`.
        """
        self.server.now_ns = now_ns
        if self.server.storage is not None:
            self.server.storage.receive(now_ns)
        self._kv.begin_decision(now_ns, self.server.device_free_ns)
        if self.restores is not None:
            self.restores.begin_pass()
        self._joined.clear()
        self.server.batch.turns.gather()
        self.server.drop_finished()
        if self.stages is None:
            self._look()
        else:
            turn = self.server.batches.index(self.server.batch)
            self.stages.look(turn, self.preallocation, self.transfers)
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

    def end_turn(self, *, is_idle: bool) -> None:
        """With stages, at the end of a pass: act on what all of them have seen.

        `process_retract_queue`, `process_prealloc_queue` and `process_decode_transfer_queue` in
        managers/scheduler_pp_mixin.py. Of the running requests, they count those of one
        micro-batch: that whose turn it is. `is_idle`: nothing was launched, or is in flight.
        """
        if self.stages is None:
            return
        agreed = self.stages.agreement.agreed
        if agreed is not None:
            self.arrived += self.preallocation.resume(self._num_active, agreed.retracted)
            if not self.preallocation.retracted:
                self._preallocate(agreed)
            self._take_arrived(agreed.ended)
        preallocation = self.preallocation
        state = (
            len(preallocation.requests), len(preallocation.retracted),
            len(self.transfers.requests), len(self.arrived), self.server.num_slots_used,
        )  # fmt: skip
        self.stages.agreement.end_pass(state, is_idle=is_idle)

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
        has_some = bool(self.preallocation.requests or self.transfers.requests)
        has_restored = self.restores is not None and self.restores.has_begun_some
        return self.server.has_dropped_rows or has_restored or (looks_later and has_some)

    @property
    def _num_free_rows(self) -> int:
        return self._config.max_running_requests - self.server.batch.num_rows

    @property
    def _num_active(self) -> int:
        """Requests that hold KV; rows that have finished count until the next decode step."""
        return self.server.batch.num_rows + len(self.transfers.requests) + len(self.arrived)

    @property
    def _rows(self) -> list[SglangRequest]:
        """SGLang's running batch, with the rows that have finished."""
        return [*self.server.running.requests, *self.server.batch.ended]

    def _preallocate(self, agreed: SeenByStage | None = None) -> None:
        """`pop_preallocated`: drop what is lost, then allocate KV of new requests."""
        transfers = self.transfers
        if transfers.lost:
            gone: Collection[str] = transfers.lost
            if agreed is not None:
                gone = {*agreed.lost, *transfers.given_up.intersection(agreed.new)}
            lost = self.preallocation.drop(gone)
            transfers.forget_lost([request.rid for request in lost])
            self.server.dropped += lost
        self.transfers.requests += self.preallocation.preallocate(
            self._rows,
            self._num_active,
            len(self.transfers.requests),
            None if agreed is None else agreed.new,
        )

    def _take_arrived(self, agreed: Collection[str] | None = None) -> None:
        """Requests whose KV has arrived join the waiting queue, in the order of their allocation.

        `agreed`: with stages, those that all have seen; None: there is one stage.
        """
        for request in self.transfers.pop(agreed):
            request.num_generated = 1  # The prefill server's token comes with the KV.
            self._number(request)
            self.arrived.append(request)

    # ---- the step ------------------------------------------------------------------------------

    def begin_decision(self, num_missed_steps: int) -> None:
        self._num_missed_steps = num_missed_steps

    def end_decision(self) -> None:
        decision = self.server.decision
        if self.restores is not None and decision.launch is not None:
            decision.restored = self.restores.take_loaded()
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
        if self.restores is not None and self.restores.waits_for_turn:
            return False
        if self.preallocation.retracted:
            return self.preallocation.stays_retracted(self._num_active)
        return not self.transfers.has_news and self.preallocation.is_stuck(
            self._rows, self._num_active, len(self.transfers.requests)
        )
