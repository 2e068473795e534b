"""The second half of a vLLM step with speculative decoding: admission, and padded rows.

From 0.33.0 on, a request that lacks a single token when it is admitted is padded with as many
tokens as others have drafts. So all rows of the step have one length, and one CUDA graph serves
them. The padding is rejected.

vLLM 0.19.0 and 0.33.0: `Scheduler.schedule`, second loop (v1/core/sched/scheduler.py).
"""

from collections.abc import Sequence

from sim.core.request import Status
from sim.vllm.cache.memory import BlockMemory, Chunk
from sim.vllm.config import VllmConfig
from sim.vllm.request import RowRequest, VllmRequest
from sim.vllm.scheduler.drafting import Drafting
from sim.vllm.scheduler.step_limits import PromptLimits, chunk_tokens
from sim.vllm.scheduler.waiting_queue import FcfsQueue, PriorityQueue


class RowAdmission:
    """Admits the waiting requests of one server.

    Attributes:
        deferred: waiting requests that were passed over since they were preempted.
    """

    def __init__(
        self,
        config: VllmConfig,
        *,
        drafting: Drafting,
        kv: BlockMemory,
        waiting: FcfsQueue | PriorityQueue,
    ) -> None:
        self._config = config
        self._drafting = drafting
        self._kv = kv
        self._waiting = waiting
        self.deferred: set[RowRequest] = set()
        self._num_admissions = 0
        self._may_pad = False
        self._beside_rows = False

    def run(
        self,
        running: list[RowRequest],
        budget: int,
        limits: PromptLimits,
        *,
        rows: Sequence[VllmRequest],
        has_prefilled: bool,
    ) -> list[RowRequest]:
        """Admit requests and return them; they are also appended to `running`.

        Args:
            running: all running requests.
            budget: tokens of the step that are left.
            limits: what limits the prompts of this step.
            rows: running requests that have tokens in this step.
            has_prefilled: a running request got a chunk of its prompt in this step.
        """
        admitted: list[RowRequest] = []
        passed_over: list[RowRequest] = []
        self._may_pad = self._config.rules.pads_new_rows and not has_prefilled
        self._beside_rows = bool(rows)
        slots = self._drafting.row_slots
        while len(self._waiting) and budget > slots and len(running) < self._config.max_active:
            request = self._waiting.next()
            if not isinstance(request, RowRequest):
                raise TypeError(request.rid)
            if self._is_in_flight(request):
                if not self._config.rules.passes_over_victims_in_flight:
                    break
                self._waiting.remove(request)
                self.deferred.add(request)
                passed_over.append(request)
                continue
            num_tokens = self._admit(request, budget - slots, limits, beside_others=bool(running))
            if not num_tokens:
                break
            budget -= num_tokens + slots
            running.append(request)
            admitted.append(request)
        for request in reversed(passed_over):
            self._waiting.put_back(request)
        return admitted

    def _is_in_flight(self, request: RowRequest) -> bool:
        """Whether a waiting request was in a step in flight, before it was preempted.

        Versions up to 0.19.0 do not ask, and in pipelines of three or more stages could compute its
        token in flight twice. Here it waits for the token in their case, too, but not for a chunk.
        """
        if self._config.rules.passes_over_victims_in_flight:
            return request.num_in_flight > 0
        return request.num_samples > 0

    def _admit(
        self, request: RowRequest, budget: int, limits: PromptLimits, *, beside_others: bool
    ) -> int:
        """Admit a request if it fits; returns the tokens that it gets, 0: it does not fit."""
        config, kv = self._config, self._kv
        num_tokens = request.num_tokens
        hit = kv.look_up(request.kv, num_tokens, drops_last=self._drafting.drops_last_block)
        prefix_len = hit.num_tokens
        if limits.are_deferred and prefix_len < num_tokens - 1:
            return 0
        num_new, padding = num_tokens - prefix_len, 0
        if num_new == 1 and self._pads(prefix_len):
            padding = self._drafting.num_tokens
            num_new += padding
            if num_new > budget:
                return 0
        num_new = chunk_tokens(num_new, limits.largest_chunk, num_new)
        if num_new > budget and not config.enable_chunked_prefill:
            return 0
        num_new = min(num_new, budget)
        if limits.aligned is not None:
            junction = hit.longest if hit.longest > prefix_len else 0
            num_new = limits.aligned.num_tokens(request, prefix_len, num_new, junction)
            if not num_new:
                return 0
        end = prefix_len + num_new
        lookahead = self._drafting.lookahead if config.rules.looks_ahead_at_admission else 0
        num_places = min(end + lookahead, config.max_model_len)
        num_whole = num_tokens if config.scheduler_reserve_full_isl else 0
        num_spare = config.watermark_blocks if beside_others else 0
        chunk = Chunk(prefix_len, num_places, max(request.prompt_len, num_tokens - 1))
        if not kv.has_room(hit, chunk, num_whole, num_spare):
            return 0
        self._waiting.remove(request)
        self.deferred.discard(request)
        kv.place(request.kv, hit, chunk)
        kv.note_full(request.kv, end, num_tokens)
        request.fill_len = num_tokens
        request.padding = padding
        request.found(prefix_len)
        request.take_chunk(end)
        request.seq_len = end
        request.status = Status.RUNNING
        self._num_admissions += 1
        request.admission = self._num_admissions
        return num_new

    def _pads(self, prefix_len: int) -> bool:
        """Whether a request that lacks one token is padded."""
        if not (self._may_pad and (self._beside_rows or prefix_len)):
            return False
        return prefix_len + self._drafting.num_tokens + 2 <= self._config.max_model_len
