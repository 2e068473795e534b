"""Admits vLLM's waiting requests (rules 5 to 7), or begins to fetch their KV."""

from functools import partial

from sim.core.errors import InputError, InvariantError
from sim.core.request import Status
from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.config import VllmConfig
from sim.vllm.request import CacheHit, Chunk, VllmRequest
from sim.vllm.scheduler.connector import Connector
from sim.vllm.scheduler.decode_rows import LockstepRows
from sim.vllm.scheduler.running_pass import PromptLimits, RunningPass, chunk_tokens
from sim.vllm.scheduler.step_limits import drafting_of
from sim.vllm.scheduler.waiting_queues import WaitingQueue, build_waiting

# Says that a request is passed over: those behind it are looked at.
_PASSED_OVER = -1


class WaitingPass:
    """Admits the waiting requests of one server.

    Attributes:
        waiting: waiting requests without blocks.
        holding: waiting requests that have got blocks, those that have lost them included; before
            version 0.33.0: all that were passed over (`skipped_waiting` of vLLM).
        deferred: waiting requests that were passed over since they began to wait.
        refused: with rows in lockstep: a waiting request that has no room until a request frees
            blocks. It is not looked up in every step, but in CPU memory, which notes each lookup.
    """

    def __init__(
        self,
        config: VllmConfig,
        *,
        memory: KVCacheCoordinator,
        connector: Connector,
        lockstep: LockstepRows | None,
    ) -> None:
        self.waiting = build_waiting(config.scheduling_policy)
        self.holding = build_waiting(config.scheduling_policy)
        self.deferred: set[VllmRequest] = set()
        self.refused: VllmRequest | None = None
        self._config = config
        self._memory = memory
        self._connector = connector
        self._loads = connector.loads
        self._lockstep = lockstep
        self._drafting = drafting_of(config)
        self._lookahead = self._drafting.lookahead if config.rules.looks_ahead_at_admission else 0
        self._num_admissions = 0
        self._passes_over_victims = config.rules.passes_over_victims_in_flight
        self._pads_new_rows = config.rules.pads_new_rows
        self._holders_first = config.rules.holders_first
        self._most_running = config.max_active
        self._watermark_blocks = config.watermark_blocks
        self._may_pad = self._beside_rows = False

    def __len__(self) -> int:
        return len(self.waiting) + len(self.holding)

    def all(self) -> list[VllmRequest]:
        return [*self.holding.all(), *self.waiting.all()]

    def admits_nothing_beside(self, num_rows: int) -> bool:
        """Whether no request can be admitted before one of the rows that decode frees blocks."""
        if num_rows >= min(self._most_running, self._config.max_num_batched_tokens):
            return True
        loads = self._loads
        if loads is not None and (len(self.holding) > len(loads.loading) or loads.ended):
            return False
        return not len(self.waiting) or self.waiting.next() is self.refused

    def remove(self, request: VllmRequest) -> None:
        self.deferred.discard(request)
        if self.refused is request:
            self.refused = None
        holds = any(each is request for each in self.holding.all())
        (self.holding if holds else self.waiting).remove(request)

    def run(
        self, running: list[VllmRequest], steps: RunningPass, limits: PromptLimits
    ) -> list[VllmRequest]:
        """Admit requests and return them; they are also appended to `running`.

        `running` are all running requests. `steps` is the first half of the step, which has left
        some budget.
        """
        admitted: list[VllmRequest] = []
        passed_over: list[tuple[VllmRequest, WaitingQueue]] = []
        budget, slots = steps.budget, self._drafting.row_slots
        if self._loads is not None:
            self._loads.has_chunk = set(steps.chunks)
        self._may_pad = self._pads_new_rows and not steps.has_prefilled
        self._beside_rows = steps.has_rows
        while budget > slots and len(running) < self._most_running:
            queue = self._next_queue()
            if not len(queue):
                break
            request = queue.next()
            if request is self.refused:
                break
            num_tokens = self._try(request, budget - slots, limits, beside_others=bool(running))
            if not num_tokens:
                break
            queue.remove(request)
            if num_tokens == _PASSED_OVER:
                self.deferred.add(request)
                holds = request.seq_len > 0 or not self._holders_first
                passed_over.append((request, self.holding if holds else self.waiting))
                continue
            self.deferred.discard(request)
            if self._loads is not None:
                self._loads.admitted(request)
            budget -= num_tokens + slots
            running.append(request)
            admitted.append(request)
        for request, queue in reversed(passed_over):
            queue.put_back(request)
        return admitted

    def _next_queue(self) -> WaitingQueue:
        holding, waiting = self.holding, self.waiting
        if not (len(holding) and len(waiting)):
            return holding if len(holding) else waiting
        return holding if self._holders_first or holding.is_ahead_of(waiting) else waiting

    def _try(
        self, request: VllmRequest, budget: int, limits: PromptLimits, *, beside_others: bool
    ) -> int:
        """The tokens that a request gets in this step; 0: it does not fit, nor does any other."""
        result = self._load(request, budget, limits, beside_others=beside_others)
        if result is not None:
            return result
        num_tokens = self._admit(request, budget, limits, beside_others=beside_others)
        if not (num_tokens or beside_others) and self._blocks_others(request):
            return _PASSED_OVER
        return num_tokens

    # ---- KV that comes from elsewhere ----------------------------------------------------------

    def _load(
        self, request: VllmRequest, budget: int, limits: PromptLimits, *, beside_others: bool
    ) -> int | None:
        """As `_try`, of a request that waits for KV or for a token; None: it may be admitted."""
        loads = self._loads
        if loads is not None:
            was_loading = request.rid in loads.loading
            if loads.has_to_wait(request):
                return _PASSED_OVER
            if was_loading:
                self._load_ended(request)
            if request.pulls:
                hit = self._memory.find_hit_to_load(request.kv, request.prompt_len)
                num_wanted = loads.num_wanted(request)
                num_more = self._num_in_memory(request, hit.num_tokens)
                if num_more is None:
                    return _PASSED_OVER
                if hit.num_tokens < num_wanted:
                    if num_more:
                        # vLLM takes this load's share of what a step may wait for, too.
                        num_there = hit.num_tokens + num_more
                        self._connector.step_waits_for(request, hit.num_tokens, num_there)
                    return self._begin_load(request, hit, num_wanted, beside_others=beside_others)
        if self._has_token_in_flight(request):
            return _PASSED_OVER if self._passes_over_victims else 0
        if self._connector.looks_up and not request.seq_len:
            return self._load_from_memory(request, budget, limits, beside_others=beside_others)
        return None

    def _num_in_memory(self, request: VllmRequest, num_found: int) -> int | None:
        """What CPU memory has of a request, whose KV comes from a prefill server.

        vLLM's `MultiConnector` asks all of its connectors, and waits for the answer of each.
        """
        connector = self._connector
        return connector.num_loadable(request, num_found) if connector.looks_up else 0

    def _load_from_memory(
        self, request: VllmRequest, budget: int, limits: PromptLimits, *, beside_others: bool
    ) -> int | None:
        hit = self._memory.find_longest_cache_hit(request.kv, request.num_tokens)
        num_found = hit.num_tokens
        num_more = self._connector.num_loadable(request, num_found)
        if not num_more:
            return _PASSED_OVER if num_more is None else None
        num_wanted = num_found + num_more
        if self._connector.step_waits_for(request, num_found, num_wanted):
            return self._admit(request, budget, limits, num_more, beside_others=beside_others)
        result = self._begin_load(request, hit, num_wanted, beside_others=beside_others)
        if result:
            self._connector.load(request, num_found, num_wanted)
        return result

    def _begin_load(
        self, request: VllmRequest, hit: CacheHit, num_wanted: int, *, beside_others: bool
    ) -> int:
        """Begin to fetch what a request lacks of its first `num_wanted` tokens; 0: no room."""
        loads = self._loads
        assert loads is not None  # noqa: S101 - the caller has looked
        num_whole, num_spare = self._demands(request, beside_others=beside_others)
        begins = loads.begin(request, hit, num_wanted, num_whole, num_spare)
        self.refused = request if not begins and self._stays_refused(request, hit) else None
        return _PASSED_OVER if begins else 0

    def _load_ended(self, request: VllmRequest) -> None:
        """A request's KV has come, or is lost: if it has come, others find it from now on."""
        self.refused = None
        if request.seq_len:
            self._memory.cache_loaded(request.kv, request.seq_len, self._catch_up_of(request))

    def _blocks_others(self, request: VllmRequest) -> bool:
        """Whether nothing will happen any more, because this request is first in the queue.

        It has lost its blocks, and does not fit beside those that another waiting request has. That
        one's turn would free blocks, as its KV has come or is lost, too, but does not come before
        this one's. vLLM would wait for ever, and so does this while a client may still give up.
        """
        loads = self._loads
        if loads is None or not loads.is_last_chance:
            return False
        if any(each.spec.gives_up_ns is not None for each in self.holding.all()):
            return False
        holding = [each for each in self.holding.all() if each is not request]
        return len(holding) < len(self.holding) and any(
            each.seq_len and (each.rid not in loads.loading or each.rid in loads.ended)
            for each in holding
        )

    @property
    def is_stuck(self) -> bool:
        """Whether the first waiting request lost its KV, and is never loaded from CPU memory.

        The blocks that it needs are kept free from its own load, too (`KvLoads`).
        """
        loads, queue = self._loads, self._next_queue()
        if loads is None or not loads.is_last_chance or not len(queue):
            return False
        return loads.has_lost(queue.next())

    def raise_if_stuck(self, num_running: int) -> None:
        """No request gets a token, and nothing is under way: find out whether that may be.

        Before version 0.33.0, loads may leave no room for the rest of any prompt; or `is_stuck`.

        Raises:
            InputError: it may, and no client will give up.
            InvariantError: it must not be.
        """
        waiting, is_old = self.all(), not self._config.rules.reserves_for_loads
        is_usual = any(request.seq_len for request in waiting) if is_old else self.is_stuck
        if num_running or not is_usual:
            what = f"{len(waiting)} requests wait and {num_running} run"
            raise InvariantError(f"{what}, but none gets a token")
        if all(request.spec.gives_up_ns is None for request in waiting):
            what = f"vLLM {self._config.version} keeps {len(waiting)} requests waiting for ever"
            what += ": what is loaded from CPU memory leaves "
            what += "no room for other prompts" if is_old else "room for all lost prompts, it too"
            key = "version" if is_old else "kv_load_failure_policy"
            raise InputError(what, key=("scheduler", key))

    # ---- one request ---------------------------------------------------------------------------

    def _has_token_in_flight(self, request: VllmRequest) -> bool:
        """Whether a waiting request was in a step in flight, before it was preempted.

        Versions up to 0.19.0 do not ask, and in pipelines of three or more stages could compute its
        token in flight twice. That is not simulated: with these versions, too, a request waits for
        its token in flight, but unlike later it does not wait for a chunk.
        """
        if not self._connector.keeps_token:
            return False
        if self._passes_over_victims:
            return request.num_in_flight > 0
        return request.num_samples > 0

    def _admit(
        self,
        request: VllmRequest,
        budget: int,
        limits: PromptLimits,
        num_more: int = 0,
        *,
        beside_others: bool,
    ) -> int:
        """Admit a request if it fits; returns the tokens that it gets, 0: it does not fit.

        `num_more`: tokens behind those found here that its first step loads before it begins.
        """
        config, memory = self._config, self._memory
        num_tokens = request.num_tokens
        hit: CacheHit | None = None
        if request.seq_len:
            # Its KV has been fetched; the last token is computed again, to sample the next one.
            start = min(request.seq_len, num_tokens - 1)
        else:
            hit = memory.find_longest_cache_hit(request.kv, num_tokens)
            start = hit.num_tokens + num_more
        if limits.are_deferred and start < num_tokens - 1:
            return 0
        num_new = self._num_new(request, start, hit, budget, limits)
        if not num_new:
            return 0
        end = start + num_new
        num_whole, num_spare = self._demands(request, beside_others=beside_others)
        lookahead = self._drafting.lookahead if hit is None else self._lookahead
        num_places = min(end + lookahead, config.max_model_len)
        chunk = Chunk(start, num_places, request.prefill_end, num_places - end)
        if hit is None:
            if not memory.fits_behind(request.kv, chunk, num_whole, num_spare):
                return 0
            memory.allocate_new_blocks(request.kv, chunk)
        elif not memory.can_admit(hit, chunk, num_whole, num_spare):
            self.refused = request if self._stays_refused(request, hit) else None
            return 0
        else:
            self.refused = None
            memory.admit(request.kv, hit, chunk, self._catch_up_of(request))
            if num_more:
                self._connector.load(request, start - num_more, start)
        memory.cache_blocks(request.kv, end, num_tokens)
        request.fill_len = num_tokens
        # The 0.0 below: loads make no step longer.
        num_loaded = min(request.loaded_len, start) if hit is None else num_more
        request.found(start - num_loaded)
        request.take_chunk(end, num_loaded, 0.0)
        request.seq_len = end
        request.status = Status.RUNNING
        self._num_admissions += 1
        request.admission = self._num_admissions
        return num_new

    def _demands(self, request: VllmRequest, *, beside_others: bool) -> tuple[int, int]:
        """For how many tokens blocks must be free, and how many blocks must be left over."""
        num_whole = request.num_tokens if self._config.scheduler_reserve_full_isl else 0
        return num_whole, self._watermark_blocks if beside_others else 0

    def _num_new(
        self,
        request: VllmRequest,
        start: int,
        hit: CacheHit | None,
        budget: int,
        limits: PromptLimits,
    ) -> int:
        """How many tokens a request behind `start` tokens computes; 0: it may not."""
        padding = self._padding(request, start)
        request.padding = padding
        num_new = request.num_tokens - start + padding
        if padding and num_new > budget:
            return 0
        num_new = chunk_tokens(num_new, limits.largest_chunk, num_new)
        if num_new > budget and not self._config.enable_chunked_prefill:
            return 0
        num_new = min(num_new, budget)
        if limits.aligned is None:
            return num_new
        # If the request's KV has come, the decision that fetched it has noted the junction.
        junction = request.kv.junction
        if hit is not None:
            junction = hit.longest if hit.longest > start else 0
        num_aligned = limits.aligned.num_tokens(request, start, num_new, junction)
        if padding and 0 < num_aligned < num_new:
            # A padded row is whole, or not padded.
            request.padding = 0
            return 1
        return num_aligned

    def _padding(self, request: VllmRequest, start: int) -> int:
        """How many tokens that stand for drafts a request gets behind its own."""
        if request.num_tokens - start == 1 and (self._beside_rows or start):
            num_drafts = self._drafting.num_tokens
            if self._may_pad and start + num_drafts + 2 <= self._config.max_model_len:
                return num_drafts
        return 0

    def _catch_up_of(self, request: VllmRequest) -> "partial[None] | None":
        """Called when another request looks for blocks that this one fills by decoding."""
        return None if self._lockstep is None else partial(self._lockstep.catch_up, request)

    def _stays_refused(self, request: VllmRequest, hit: CacheHit) -> bool:
        """Whether a request for which there is no room has none before blocks are freed.

        Until then the running requests only take free blocks. So the request may find fewer blocks,
        and then needs as many more. It could find more only if a running request computed, or
        generated, what continues its prompt.

        If the whole prompt need not fit, this holds only while the same decode step is repeated,
        and only if all found blocks are in use. Free ones may be taken by others: then the request
        finds less, its first chunk ends earlier, and may fit.
        """
        if self._lockstep is None or self._connector.looks_up:
            return False
        memory = self._memory
        if memory.may_find_more(request.kv, hit):
            return False
        reserves_all = self._config.scheduler_reserve_full_isl
        return reserves_all or not memory.pool.num_free(hit.blocks[0])
