"""The queues of a prefill server, whose requests decode on another server.

Source: SGLang 0.5.23, `SchedulerDisaggregationPrefillMixin` and `PrefillBootstrapQueue` in
disaggregation/prefill.py. docs/explanation/disaggregation.md has the rules.
"""

from collections.abc import Collection, Sequence

from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.server import SglangServer
from sim.sglang.scheduler.waiting.queue import Queues, WaitingQueue

# `req_to_metadata_buffer_idx_allocator`: places for what goes with the KV, per request slot.
_BUFFERS_PER_SLOT = 2


class PrefillQueues(Queues):
    """Of a server that computes prompts and decodes nothing.

    A request passes through three places:

        bootstrap queue   until its decode server has memory for its KV
        waiting queue     until its prompt is computed, as on any server
        in flight         until its KV has been sent; it keeps its KV and its slot

    Attributes:
        bootstrapping: the bootstrap queue, in order of arrival.
        held: the requests in flight.
        passes_again: if a pass launches nothing, the next one follows at once, as it may see what
            this one does not.
    """

    def __init__(self, server: SglangServer, waiting: WaitingQueue) -> None:
        super().__init__(server, waiting, None)
        self.decodes = False
        self.drops_chunks = not server.takes_turns
        self.bootstrapping: list[SglangRequest] = []
        self.held: list[SglangRequest] = []
        self.passes_again = False
        # Requests of the bootstrap queue whose decode server has memory for them, by rid.
        self._ready: set[str] = set()
        self._num_buffers = _BUFFERS_PER_SLOT * server.config.max_running_requests
        self._buffered: set[str] = set()
        # `num_refreshes` of the waiting queue when the decision began.
        self._num_refreshes = 0

    # ---- requests ------------------------------------------------------------------------------

    def token_limit(self, num_tokens: int) -> int:
        """`PrefillBootstrapQueue._process_req`: every request counts as one token's."""
        return 1

    def enter(self, request: SglangRequest) -> None:
        request.entered_ns = self.server.now_ns
        self.bootstrapping.append(request)

    def note_room(self, rid: str) -> None:
        """The request's decode server has allocated its KV."""
        self._ready.add(rid)

    def take_ready(self, failed: Collection[str]) -> None:
        """`pop_bootstrapped`: requests with memory on their decode servers join the waiting queue.

        Those whose transfers have `failed` stay in the bootstrap queue.
        """
        if not self._ready:
            return
        staying: list[SglangRequest] = []
        for request in self.bootstrapping:
            is_ready = request.rid in self._ready and request.rid not in failed
            if is_ready and len(self._buffered) < self._num_buffers:
                self._ready.remove(request.rid)
                self._buffered.add(request.rid)
                self.waiting.enter(request)
            else:
                staying.append(request)
        self.bootstrapping = staying

    def abort(self, request: SglangRequest) -> bool:
        self._ready.discard(request.rid)
        if request in self.bootstrapping:
            self.bootstrapping.remove(request)
            return True
        is_gone = super().abort(request)
        if is_gone:
            self._buffered.discard(request.rid)
        return is_gone

    def hold(self, request: SglangRequest) -> None:
        """The prompt is computed, and its KV stays until it is sent."""
        self.held.append(request)

    def let_go(self, request: SglangRequest) -> None:
        """A held request's KV has left, or is not wanted; it ends next."""
        self.held.remove(request)

    def slot_freed(self, request: SglangRequest) -> None:
        self._buffered.discard(request.rid)

    @property
    def waiting_requests(self) -> Sequence[SglangRequest]:
        return [*self.waiting.requests, *self.bootstrapping]

    @property
    def elsewhere(self) -> Sequence[SglangRequest]:
        return self.held

    @property
    def state(self) -> tuple[int, ...]:
        """What a pass that launches nothing may change."""
        num_waiting = len(self.waiting.requests)
        return len(self.bootstrapping), num_waiting, len(self.held), self.server.num_slots_used

    # ---- the step ------------------------------------------------------------------------------

    def begin_decision(self, num_missed_steps: int) -> None:
        """`get_next_disagg_prefill_batch_to_run`: `batch_is_full` is not kept between decisions."""
        self._num_refreshes = self.waiting.num_refreshes
        self.server.batch.is_full = False

    @property
    def repeats(self) -> bool:
        """No: there are no decode steps to repeat."""
        return False

    def begin_idle(self) -> None:
        if self.waiting.num_refreshes != self._num_refreshes and not self.passes_again:
            self.waiting.refresh_while_idle()

    @property
    def waits_for_partner(self) -> bool:
        return bool(self.held or (self.bootstrapping and not self.waiting.requests))
