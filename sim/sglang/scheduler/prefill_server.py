"""SGLang's scheduler of a prefill server, whose requests decode on another server.

Source: SGLang 0.5.23, `SchedulerDisaggregationPrefillMixin` and `PrefillBootstrapQueue` in
disaggregation/prefill.py. docs/explanation/disaggregation.md has the rules.
"""

from collections.abc import Collection, Iterable, Sequence

from sim.core.request import Status
from sim.engine.scheduler import Decision
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import SchedulePolicy
from sim.sglang.request import SglangDecision, SglangLaunch, SglangRequest
from sim.sglang.scheduler.scheduler import SglangScheduler

# `req_to_metadata_buffer_idx_allocator`: places for what goes with the KV, per request slot.
_BUFFERS_PER_SLOT = 2


class SglangPrefillScheduler(SglangScheduler):
    """A scheduler that computes prompts and decodes nothing.

    A request passes through three places:

        bootstrap queue   until its decode server has room for its KV
        waiting queue     until its prompt is computed, as on any server
        in flight         until its KV has been sent; it keeps its KV and its slot

    Attributes:
        bootstrapping: the bootstrap queue, in order of arrival.
        held: the requests in flight.
    """

    def __init__(
        self, config: SchedulerConfig, *, kv: KVCacheManager, policy: SchedulePolicy
    ) -> None:
        super().__init__(config, kv=kv, policy=policy)
        # SGLANG_DISAGG_PREFILL_EARLY_SEND_CACHED_PREFIX is on by default.
        self.sends_cached_first = True
        self.bootstrapping: list[SglangRequest] = []
        self.held: list[SglangRequest] = []
        # Requests of the bootstrap queue for which there is room, by rid.
        self._ready: set[str] = set()
        self._num_buffers = _BUFFERS_PER_SLOT * config.max_running_requests
        self._buffered: set[str] = set()
        # Passes before this decision that may mark the prefixes of waiting requests as used.
        self._num_refreshes = 0

    # ---- requests ------------------------------------------------------------------------------

    def token_limit(self, prompt_len: int, max_new_tokens: int) -> int:
        """`PrefillBootstrapQueue._process_req`: every request is computed for one token."""
        return min(super().token_limit(prompt_len, max_new_tokens), 1)

    def takes(self, prompt_len: int, max_new_tokens: int) -> bool:
        return not self._is_too_long(prompt_len) and super().takes(prompt_len, max_new_tokens)

    def enter(self, request: SglangRequest) -> None:
        request.entered_ns = self._now_ns
        self.bootstrapping.append(request)

    def note_room(self, request: SglangRequest) -> None:
        self._ready.add(request.rid)

    def take_ready(self, failed: Collection[str]) -> None:
        """`pop_bootstrapped`: requests with room for their KV join the waiting queue, in order.

        Requests that wait and have failed keep their places until then.
        """
        if not self._ready:
            return
        staying: list[SglangRequest] = []
        for request in self.bootstrapping:
            has_room = request.rid in self._ready and request.rid not in failed
            if has_room and len(self._buffered) < self._num_buffers:
                self._ready.remove(request.rid)
                self._buffered.add(request.rid)
                self.waiting.enter(request)
            else:
                staying.append(request)
        self.bootstrapping = staying

    def abort(self, request: SglangRequest, in_flight: Sequence[SglangLaunch]) -> bool:
        self._ready.discard(request.rid)
        if request in self.bootstrapping:
            self.bootstrapping.remove(request)
            return True
        is_gone = super().abort(request, in_flight)
        if is_gone:
            self._buffered.discard(request.rid)
        return is_gone

    def hold(self, request: SglangRequest) -> None:
        self.held.append(request)

    def discard(self, request: SglangRequest) -> None:
        """`_retire_aborted_prefill_result`: nothing of it is cached."""
        self._release(request)

    def let_go(self, request: SglangRequest) -> None:
        self.held.remove(request)

    def free_slot(self, request: SglangRequest) -> None:
        self._buffered.discard(request.rid)
        super().free_slot(request)

    def waiting_requests(self) -> Iterable[SglangRequest]:
        return [*self.waiting.requests, *self.bootstrapping]

    def requests_elsewhere(self) -> Iterable[SglangRequest]:
        return [*super().requests_elsewhere(), *self.held]

    # ---- the step ------------------------------------------------------------------------------

    def decide(self, now_ns: int, in_flight: SglangLaunch | None) -> SglangDecision:
        """`get_next_disagg_prefill_batch_to_run`: a prefill batch, or nothing."""
        decision: SglangDecision = Decision()
        self._decision = decision
        self._made_room = False
        self._now_ns = now_ns
        self._num_refreshes = self.waiting.num_refreshes
        if self._drops_chunk:
            self._drop_chunk()
        self._kv.begin_decision(now_ns, self.device_free_ns)
        self.is_full = False
        self._checkpoint_chunk()
        launch = self._prefill(now_ns, in_flight)
        decision.waited_ns = self._kv.waited_ns
        self._last = decision.launch = launch
        return decision

    def idle(self, now_ns: int, decision: SglangDecision) -> int | None:
        if self.waiting.num_refreshes != self._num_refreshes:
            self.waiting.refresh_while_idle()
        copies_ns = self._kv.next_change_ns(now_ns)
        if copies_ns is not None:
            return copies_ns
        if self.held or (self.bootstrapping and not self.waiting.requests):
            return None
        return self._idle(now_ns, decision)

    @property
    def repeats(self) -> bool:
        """There are no decode steps to repeat."""
        return False

    def _in_batches(self) -> Iterable[SglangRequest]:
        prefilled = [] if self._last is None else self._last.prefill
        return [request for request in prefilled if request.status is Status.RUNNING]
