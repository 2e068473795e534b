"""Admission of a decode server: blocks for a whole prompt, whose KV is then fetched.

A request with blocks waits in a queue of its own until its KV is there. That queue goes first: no
request without blocks is looked at while it has one that can be admitted.

vLLM 0.33.0: `Scheduler.schedule`, second loop, `_update_waiting_for_remote_kv`
(v1/core/sched/scheduler.py); `get_num_new_matched_tokens`
(distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py).
"""

from collections.abc import Callable
from functools import partial

from sim.core.request import Status
from sim.vllm.cache.manager import BlockManager
from sim.vllm.cache.memory import Chunk
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmRequest
from sim.vllm.scheduler.lockstep_admission import LockstepAdmission
from sim.vllm.scheduler.running_pass import RunningPass
from sim.vllm.scheduler.step_limits import PromptLimits
from sim.vllm.scheduler.waiting_queue import WaitingQueue, build_waiting

# Says that a request is passed over: those behind it are looked at.
_PASSED_OVER = -1


class DecodeAdmission(LockstepAdmission):
    """Admits the waiting requests of one decode server.

    Attributes:
        holding: waiting requests that have got blocks, those that have lost them included.
        loading: those of them, by rid, whose KV is not known to be there.
        ended: those of `loading` whose transfer has ended, and whether it has failed. The next pass
            that looks at them takes them out.
        deferred: requests that were passed over since they began to wait, but for arrivals.
        is_last_chance: nothing else will free blocks: no step is in flight, and no KV on its way.
        started: requests whose transfer begins with this decision, with the tokens found here.
    """

    def __init__(
        self,
        config: VllmConfig,
        *,
        kv: BlockManager,
        waiting: WaitingQueue[VllmRequest],
        catch_up: Callable[[VllmRequest], None],
    ) -> None:
        super().__init__(config, kv=kv, waiting=waiting, catch_up=catch_up)
        self.holding: WaitingQueue[VllmRequest] = build_waiting(config.scheduling_policy)
        self.loading: dict[str, VllmRequest] = {}
        self.ended: dict[str, bool] = {}
        self.deferred: set[VllmRequest] = set()
        self.is_last_chance = False
        self.started: list[tuple[VllmRequest, int]] = []
        self._queue: WaitingQueue[VllmRequest] = waiting

    @property
    def has_ready(self) -> bool:
        """Some request with blocks does not wait for its KV any more."""
        return len(self.holding) > len(self.loading) or bool(self.ended)

    def run(
        self,
        running: list[VllmRequest],
        steps: RunningPass[VllmRequest],
        limits: PromptLimits,
    ) -> list[VllmRequest]:
        admitted: list[VllmRequest] = []
        passed_over: list[VllmRequest] = []
        budget, most = steps.budget, self._config.max_active
        while budget > 0 and len(running) < most:
            self._queue = self.holding if len(self.holding) else self._waiting
            if not len(self._queue):
                break
            request = self._queue.next()
            if self._is_held_back(request):
                break
            num_tokens = self._try(request, budget, limits, running)
            if num_tokens == _PASSED_OVER:
                self._queue.remove(request)
                self.deferred.add(request)
                passed_over.append(request)
                continue
            if not num_tokens:
                break
            budget -= num_tokens
            self.deferred.discard(request)
            running.append(request)
            admitted.append(request)
        for request in reversed(passed_over):
            self.holding.put_back(request)
        return admitted

    def forget(self, request: VllmRequest) -> bool:
        """Remove a request that ends while it waits; whether its KV is still on its way."""
        self.deferred.discard(request)
        if self.refused is request:
            self.refused = None
        holds = any(each is request for each in self.holding.all())
        (self.holding if holds else self._waiting).remove(request)
        is_loading = self.loading.pop(request.rid, None) is not None
        return self.ended.pop(request.rid, None) is None and is_loading

    def _try(
        self,
        request: VllmRequest,
        budget: int,
        limits: PromptLimits,
        running: list[VllmRequest],
    ) -> int:
        """The tokens that a request gets in this step; 0: it does not fit, nor does any other."""
        if self._has_to_wait(request):
            return _PASSED_OVER
        if request.pulls:
            return _PASSED_OVER if self._begin_load(request, running) else 0
        beside_others = bool(running)
        if request.kv.unhashed is not None:
            return self._admit_loaded(request, beside_others=beside_others)
        num_tokens = self._admit(request, budget, limits, beside_others=beside_others)
        if not (num_tokens or beside_others) and self._blocks_others(request):
            return _PASSED_OVER
        return num_tokens

    def _blocks_others(self, request: VllmRequest) -> bool:
        """Whether a request that has lost its blocks keeps one from running that has some.

        vLLM would wait for ever: the first does not fit beside the second, which is behind it.
        """
        if not self.is_last_chance or self._queue is not self.holding:
            return False
        return any(
            each.kv.unhashed is not None and each.rid not in self.loading
            for each in self.holding.all()
            if each is not request
        )

    def _leave_queue(self, request: VllmRequest) -> None:
        self._queue.remove(request)

    def _has_to_wait(self, request: VllmRequest) -> bool:
        """Whether a request's KV is on its way. If it has just come, others find it from now on."""
        if request.rid not in self.loading:
            return False
        is_lost = self.ended.pop(request.rid, None)
        if is_lost is None:
            return True
        del self.loading[request.rid]
        self.refused = None
        if is_lost:
            self._kv.release(request.kv, request.seq_len)
            request.seq_len = 0
        else:
            self._kv.arrived(request.kv, request.prompt_len, partial(self._catch_up, request))
        return False

    def _begin_load(self, request: VllmRequest, running: list[VllmRequest]) -> bool:
        """Allocate blocks for a whole prompt, if there is room beside what others still need."""
        kv, prompt_len = self._kv, request.prompt_len
        hit = kv.look_up(request.kv, prompt_len, drops_last=False)
        num_spare = self._config.watermark_blocks if running else 0
        if self._config.rules.reserves_for_loads:
            num_spare += sum(
                kv.num_missing(each.kv, each.fill_len) for each in running if each.is_prefilling
            )
        chunk = Chunk(hit.num_tokens, prompt_len, prompt_len)
        if not kv.has_room(hit, chunk, 0, num_spare):
            self._refuse(request, hit)
            return False
        self.refused = None
        kv.place(request.kv, hit, chunk)
        request.pulls = False
        request.seq_len = prompt_len
        self.loading[request.rid] = request
        self.started.append((request, hit.num_tokens))
        return True

    def _admit_loaded(self, request: VllmRequest, *, beside_others: bool) -> int:
        """Admit a request whose KV is there; it computes the last token of its prompt again."""
        if beside_others and self._config.watermark_blocks > self._kv.num_free_pages:
            return 0
        num_tokens = request.num_tokens
        self._leave_queue(request)
        request.fill_len = num_tokens
        request.found(num_tokens - 1)
        request.take_chunk(num_tokens)
        request.status = Status.RUNNING
        self._num_admissions += 1
        request.admission = self._num_admissions
        return 1
