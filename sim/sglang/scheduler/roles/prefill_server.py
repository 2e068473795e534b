"""The queues of a prefill server, and what the stages of such a server or a decode server agree on.

docs/explanation/disaggregation.md has the rules. Source of the queues: SGLang 0.5.23,
`SchedulerDisaggregationPrefillMixin` and `PrefillBootstrapQueue` in disaggregation/prefill.py.

In a pipeline each stage has a scheduler, and all must decide the same. So the first stage writes
down what it sees, such as transfers that have ended, and sends it through the stages, with each
pass to the next one. The stages act on it when it has come round:

    pass of the first stage         0    1    2    3    4       (three stages)
    it sees                         s0   s1   s2   s3   s4
    at its end all stages act on              s0   s1   s2

Here all stages see the same at the same time. Source: SGLang 0.5.23,
`event_loop_pp_disagg_prefill`, `event_loop_pp_disagg_decode`, `_pp_pd_get_retract_ids`,
`_pp_pd_get_prealloc_ids` and `_pp_pd_get_decode_transferred_ids` in managers/scheduler_pp_mixin.py.
"""

from collections import deque
from collections.abc import Collection, Sequence
from typing import Generic, NamedTuple, TypeVar

from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.roles.preallocation_queue import PreallocationQueue
from sim.sglang.scheduler.roles.transfer_queue import TransferQueue
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
        chunk_grew: in this pass the cache has got more of the chunked request. If the pass launches
            nothing, the next one follows at once, as the cache may get the rest of the chunk.
    """

    def __init__(self, server: SglangServer, waiting: WaitingQueue) -> None:
        super().__init__(server, waiting, None)
        self.decodes = False
        self.drops_chunks = not server.takes_turns
        self.bootstrapping: list[SglangRequest] = []
        self.held: list[SglangRequest] = []
        self.passes_again = self.chunk_grew = False
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
        self.server.look_up(request)
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
            self._left(request)
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
        self.server.batch.is_full = self.chunk_grew = False

    def chunk_cached(self) -> None:
        """`process_prefill_chunk` caches the chunked request in every pass, so there may be more.

        The cache gets a chunk up to a branch first (`WindowPart.end_of_insertion`). The rest in the
        next pass moves the request's lock: another window can be evicted for the next chunk.
        """
        self.chunk_grew = True

    @property
    def repeats(self) -> bool:
        """No: there are no decode steps to repeat."""
        return False

    def begin_idle(self) -> None:
        if not self.passes_again:
            self.stay_idle()

    def stay_idle(self) -> None:
        """The passes that follow change nothing but the prefixes' marks."""
        if self.waiting.num_refreshes != self._num_refreshes and not self.chunk_grew:
            self.waiting.refresh_while_idle()

    @property
    def waits_for_partner(self) -> bool:
        waits = self.bootstrapping and not self.waiting.requests
        # If the cache has got more, it is not known yet whether the chunk is stuck.
        return bool(self.held or waits or self.chunk_grew)


Seen = TypeVar("Seen")


class Agreement(Generic[Seen]):
    """Lists of what the first stage has seen, on their way through the stages.

    Attributes:
        agreed: what the stages act on at the end of the latest pass; None: nothing yet.
    """

    def __init__(self, num_stages: int) -> None:
        self.agreed: Seen | None = None
        self._num_stages = num_stages
        self._under_way: deque[Seen] = deque()
        # Passes in a row that have changed nothing, and the state after them.
        self._num_quiet = 0
        self._state: tuple[int, ...] = ()

    def send(self, seen: Seen) -> None:
        """A pass begins, and this is what the first stage sees."""
        self._under_way.append(seen)
        is_round = len(self._under_way) == self._num_stages
        self.agreed = self._under_way.popleft() if is_round else None

    def note_news(self) -> None:
        """There is something to see for the next pass."""
        self._num_quiet = 0

    def end_pass(self, state: tuple[int, ...], *, is_idle: bool) -> None:
        """A pass has ended; `is_idle`: nothing was launched, and nothing is in flight."""
        self._num_quiet = self._num_quiet + 1 if is_idle and state == self._state else 0
        self._state = state

    @property
    def is_settled(self) -> bool:
        """Whether the passes of an idle server change nothing until there are news.

        What is seen acts one round later. A retracted request is seen in one pass of each round.
        """
        return self._num_quiet >= 2 * self._num_stages


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


class DecodeStages:
    """What the first stage sees, on its way through the stages."""

    def __init__(self, num_stages: int) -> None:
        self.agreement: Agreement[SeenByStage] = Agreement(num_stages)
        # Of each retracted request, the micro-batch whose turn it was when it was seen first.
        self._turn_of: dict[str, int] = {}

    def look(self, turn: int, preallocation: PreallocationQueue, transfers: TransferQueue) -> None:
        """The pass of the micro-batch `turn` begins."""
        retracted = [request.rid for request in preallocation.retracted]
        self._turn_of = {rid: self._turn_of.get(rid, turn) for rid in retracted}
        new = [request.rid for request in preallocation.requests]
        ended = transfers.lost | transfers.received
        self.agreement.send(
            SeenByStage(
                retracted=[rid for rid in retracted if self._turn_of[rid] == turn],
                new=[rid for rid in new if rid not in transfers.lost],
                lost=[rid for rid in new if rid in transfers.lost],
                ended=[request.rid for request in transfers.requests if request.rid in ended],
            )
        )
