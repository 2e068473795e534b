"""The queues of a decode server, whose prompts are computed on another server.

Source: SGLang 0.5.23, `SchedulerDisaggregationDecodeMixin`, `DecodePreallocQueue` and
`DecodeTransferQueue` in disaggregation/decode.py. docs/explanation/disaggregation.md has the rules.
"""

from collections.abc import Sequence
from dataclasses import replace

from sim.core.request import Status
from sim.sglang.policies.policy import QueueView, SchedulePolicy
from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.decode_room import DecodeRoom
from sim.sglang.scheduler.queues import Queues
from sim.sglang.scheduler.retracted_kv import RetractedKV
from sim.sglang.scheduler.server import SglangServer
from sim.sglang.scheduler.waiting_queue import WaitingQueue

# `req_to_metadata_buffer_idx_allocator`: places for what comes with the KV, per request slot.
_BUFFERS_PER_SLOT = 2


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
        queue: the preallocation queue, in order of arrival.
        transferring: the transfer queue, in order of allocation.
        received: the waiting queue.
        retracted: requests whose KV is in host memory.
        room: how much KV may be allocated.
        backups: the KV in host memory.
    """

    def __init__(self, server: SglangServer, waiting: WaitingQueue, policy: SchedulePolicy) -> None:
        super().__init__(server, waiting, None)
        config = self._config = server.config
        self._kv = server.kv
        self._policy = policy
        self.prefills = False
        self.queue: list[SglangRequest] = []
        self.transferring: list[SglangRequest] = []
        self.received: list[SglangRequest] = []
        self.retracted: list[SglangRequest] = []
        self.room = DecodeRoom(config, server.kv)
        self.backups = RetractedKV(config.retraction_host_tokens, config.page_size)
        # A row whose last token is in flight decodes again, and rows that have finished still count
        # when requests join: `get_next_batch_to_run`, which drops them, is not called.
        server.rules = replace(server.rules, leaves_out_finishing=False, drops_finished_first=False)
        self._num_slots = config.max_running_requests + config.disaggregation_decode_extra_slots
        self._num_buffers = _BUFFERS_PER_SLOT * config.max_running_requests
        # Of the transfer queue: requests whose KV has arrived. Of it and of the preallocation
        # queue: requests whose KV will not come, or that nobody waits for.
        self._arrived: set[str] = set()
        self._lost: set[str] = set()
        self._num_entries = 0
        # Rows that joined in this decision, and the steps in flight without them.
        self._joined: set[str] = set()
        self._num_missed_steps = 0
        self._num_passes = 0

    # ---- requests ------------------------------------------------------------------------------

    def ever_fits(self, prompt_len: int, num_new_tokens: int) -> bool:
        """False if the request would never find memory here (decision record 3)."""
        return self.room.ever_fits(prompt_len, num_new_tokens)

    def enter(self, request: SglangRequest) -> None:
        """A new request joins the preallocation queue; one with output was retracted."""
        if request.rid in self._joined:
            request.num_generated += self._num_missed_steps
        if not request.num_generated:
            request.entered_ns = self.server.now_ns
            self.queue.append(request)
        elif self.room.required(_num_kv_tokens(request)) > self._kv.pool_tokens:
            self.backups.drop(request.rid)
            # It would never find memory again (decision record 3).
            self.server.dropped.append(request)
        else:
            self._number(request)
            self.retracted.append(request)

    def _number(self, request: SglangRequest) -> None:
        """Note when a request entered: requests of the same priority join in this order."""
        self._num_entries += 1
        request.entry = self._num_entries

    def note_received(self, request: SglangRequest) -> None:
        self._arrived.add(request.rid)

    def note_failed(self, request: SglangRequest) -> None:
        if request.status is Status.WAITING or request in self.transferring:
            self._lost.add(request.rid)

    def abort(self, request: SglangRequest) -> bool:
        """A request without KV here, or whose KV comes, ends when the server looks for it."""
        if request in self.retracted:
            self.retracted.remove(request)
            self.backups.drop(request.rid)
            return True
        if request in self.received:
            self.received.remove(request)
            self.server.checkpoint(request, request.seq_len, is_finished=True)
            self.server.release(request)
            return True
        if request in self.queue or request in self.transferring:
            self._lost.add(request.rid)
        return False

    @property
    def num_waiting(self) -> int:
        return len(self.received)

    @property
    def waiting_requests(self) -> Sequence[SglangRequest]:
        return [*self.queue, *self.retracted]

    @property
    def elsewhere(self) -> Sequence[SglangRequest]:
        return [*self.transferring, *self.received]

    # ---- requests that begin to decode -----------------------------------------------------------

    def take_joining(self, now_ns: int) -> Sequence[SglangRequest]:
        """`process_decode_queue`, then `_get_new_prebuilt_batch`."""
        self.server.now_ns = now_ns
        self._joined.clear()
        self.server.drop_finished()
        while self._can_resume:
            request = self.retracted.pop(0)
            request.kv.found = None  # All of its KV comes back from host memory.
            self._allocate(request, _num_kv_tokens(request))
            self.backups.drop(request.rid)
            self.received.append(request)
        if not self.retracted:
            self._num_passes += 1
            if self._polls:
                self._preallocate()
                self._take_arrived()
        if self._config.enable_priority_scheduling:
            view = QueueView(now_ns, self._kv.cache.root, frozenset(), 0, self._rows)
            self.received = self._policy.order(self.received, view)
        joining = self.received[: max(self._num_free_rows, 0)]
        del self.received[: len(joining)]
        self._joined.update([request.rid for request in joining])
        for request in joining:
            self.server.checkpoint(request, request.seq_len)
        return joining

    @property
    def _polls(self) -> bool:
        """Whether the latest pass looks for room, and for KV that has arrived."""
        return self._num_passes % self._config.disaggregation_decode_polling_interval == 0

    @property
    def passes_again(self) -> bool:
        """Rows that had finished counted for the last time, or the server has not looked yet."""
        looks_later = not (self.retracted or self._polls)
        return self.server.made_room or (looks_later and bool(self.queue or self.transferring))

    @property
    def _num_free_rows(self) -> int:
        return self._config.max_running_requests - self.server.batch.num_rows

    @property
    def _has_slot(self) -> bool:
        return self.server.num_slots_used < self._num_slots

    @property
    def _num_active(self) -> int:
        """Requests that hold KV; rows that have finished count until the next decode step."""
        return self.server.batch.num_rows + len(self.transferring) + len(self.received)

    @property
    def _rows(self) -> list[SglangRequest]:
        """SGLang's running batch, with the rows that have finished."""
        return [*self.server.running.requests, *self.server.batch.ended]

    @property
    def _can_resume(self) -> bool:
        """`resume_retracted_reqs`: whether the first retracted request has room."""
        if not (self.retracted and self._has_slot):
            return False
        num_tokens = _num_kv_tokens(self.retracted[0])
        return self.room.required(num_tokens) <= self.room.budget(self._num_active, (), None, ())

    def _num_retractable(self) -> int:
        return sum([request.prompt_len + request.num_generated for request in self._rows])

    def _preallocate(self) -> None:
        """`pop_preallocated`: allocate KV of new requests, in order, as long as it fits."""
        if self._lost:
            lost = [request for request in self.queue if request.rid in self._lost]
            self.queue = [request for request in self.queue if request.rid not in self._lost]
            self._lost.difference_update([request.rid for request in lost])
            self.server.dropped += lost
        if not self.queue:
            return
        if self._config.enable_priority_scheduling:
            sign = self._config.priority_sign
            self.queue.sort(key=lambda request: sign * request.priority)
        num_retractable = self._num_retractable()
        num_allocated = 0
        for request in self.queue:
            if not (self._has_slot and len(self.transferring) < self._num_buffers):
                break
            num_cached = self._lock_prefix(request)
            if not self._has_room(request, num_cached, num_retractable):
                self._kv.unlock_prefix(request.kv)
                break
            self._allocate(request, request.prompt_len, num_cached)
            self.transferring.append(request)
            num_allocated += 1
            self.server.partner.room_made(request.rid, num_cached)
        del self.queue[:num_allocated]

    def _has_room(self, request: SglangRequest, num_cached: int, num_retractable: int) -> bool:
        retracted = [_num_kv_tokens(each) for each in self.retracted]
        budget = self.room.budget(self._num_active, self._rows, num_retractable, retracted)
        return self.room.demand(request, num_cached, num_retractable) <= budget

    def _lock_prefix(self, request: SglangRequest) -> int:
        """Lock the part of the prompt that is cached here; returns its tokens."""
        num_cached = self._kv.find_prefix(request.kv, request.prompt_len, request.prompt_len)
        self._kv.lock_prefix(request.kv)
        return num_cached

    def _allocate(self, request: SglangRequest, num_tokens: int, num_cached: int = 0) -> None:
        """Allocate the KV of a request's first tokens, and a slot."""
        if request.kv.locked is None:
            self._kv.lock_prefix(request.kv)
        self._kv.allocate(request.kv, num_cached, num_tokens - num_cached)
        request.seq_len = request.num_computed = num_tokens
        request.status = Status.RUNNING
        self.server.num_slots_used += 1

    def _take_arrived(self) -> None:
        """`pop_transferred`: requests whose KV has arrived, in the order of their allocation."""
        if not (self._arrived or self._lost):
            return
        staying: list[SglangRequest] = []
        for request in self.transferring:
            if request.rid in self._lost:
                self._lost.remove(request.rid)
                self.server.release(request)
                self.server.dropped.append(request)
            elif request.rid in self._arrived:
                request.num_generated = 1  # The prefill server's token comes with the KV.
                self._number(request)
                self.received.append(request)
            else:
                staying.append(request)
        self.transferring = staying
        self._arrived.clear()

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
        return bool(self.queue or self.transferring or self.received or self.retracted)

    def decoded_again(self, num_steps: int) -> None:
        if not self.retracted:
            self._num_passes += num_steps

    @property
    def repeats(self) -> bool:
        if self.received and self._num_free_rows > 0:
            return False
        if self.retracted:
            return not self._can_resume
        return not (self._arrived or self._lost) and self._is_queue_stuck

    @property
    def _is_queue_stuck(self) -> bool:
        """Whether the preallocation queue stays as it is while the same rows decode."""
        if not self.queue:
            return True
        if self._config.disaggregation_decode_polling_interval > 1:
            return False
        if not (self._has_slot and len(self.transferring) < self._num_buffers):
            return True
        if self._kv.cache.enabled or self._config.enable_priority_scheduling:
            return False
        first, num_retractable = self.queue[0], self._num_retractable()
        if self._has_room(first, 0, num_retractable):
            return False
        return self.room.only_shrinks(first, self._num_active, self._rows, num_retractable)


def _num_kv_tokens(request: SglangRequest) -> int:
    """Tokens with KV of a request that was retracted: all but the last output."""
    return request.prompt_len + max(request.num_generated - 1, 0)
