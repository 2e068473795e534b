"""The second half of a vLLM step: which waiting requests are admitted (rules 5 to 7).

Waiting requests are looked at in order, until one does not fit.
"""

from typing import Generic

from sim.core.request import Status
from sim.vllm.cache.memory import BlockMemory, Chunk, Hit
from sim.vllm.config import VllmConfig
from sim.vllm.request import V
from sim.vllm.scheduler.drafting import drafting_of
from sim.vllm.scheduler.running_pass import RunningPass
from sim.vllm.scheduler.step_limits import PromptLimits, chunk_tokens
from sim.vllm.scheduler.waiting_queue import WaitingQueue


class Admission(Generic[V]):
    """Base class: admits the waiting requests of one server."""

    def __init__(
        self, config: VllmConfig, *, memory: BlockMemory, waiting: WaitingQueue[V]
    ) -> None:
        self._config = config
        self._memory = memory
        self._waiting = waiting
        self._drafting = drafting_of(config)
        self._lookahead = self._drafting.lookahead if config.rules.looks_ahead_at_admission else 0
        self._num_admissions = 0

    def run(self, running: list[V], steps: RunningPass[V], limits: PromptLimits) -> list[V]:
        """Admit requests and return them; they are also appended to `running`.

        Args:
            running: all running requests.
            steps: the first half of the step, which has left some budget.
            limits: what limits the prompts of this step.
        """
        admitted: list[V] = []
        budget, slots = steps.budget, self._drafting.row_slots
        most, waiting = self._config.max_active, self._waiting
        while len(waiting) and budget > slots and len(running) < most:
            request = waiting.next()
            if self._is_held_back(request):
                if self._pass_over(request):
                    continue
                break
            num_tokens = self._admit(request, budget - slots, limits, beside_others=bool(running))
            if not num_tokens:
                break
            budget -= num_tokens + slots
            running.append(request)
            admitted.append(request)
        return admitted

    def _admit(self, request: V, budget: int, limits: PromptLimits, *, beside_others: bool) -> int:
        """Admit a request if it fits; returns the tokens that it gets, 0: it does not fit."""
        config, memory = self._config, self._memory
        num_tokens = request.num_tokens
        hit = memory.look_up(request.kv, num_tokens, drops_last=self._drafting.drops_last_block)
        prefix_len = hit.num_tokens
        if limits.are_deferred and prefix_len < num_tokens - 1:
            return 0
        padding = self._pad(request, prefix_len)
        num_new = num_tokens - prefix_len + padding
        if padding and num_new > budget:
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
        num_places = min(end + self._lookahead, config.max_model_len)
        num_whole = num_tokens if config.scheduler_reserve_full_isl else 0
        num_spare = config.watermark_blocks if beside_others else 0
        chunk = Chunk(prefix_len, num_places, max(request.prompt_len, num_tokens - 1))
        if not memory.has_room(hit, chunk, num_whole, num_spare):
            self._refuse(request, hit)
            return 0
        self._leave_queue(request)
        self._place(request, hit, chunk, end)
        request.fill_len = num_tokens
        request.found(prefix_len)
        request.take_chunk(end)
        request.seq_len = end
        request.status = Status.RUNNING
        self._num_admissions += 1
        request.admission = self._num_admissions
        return num_new

    # ---- what differs --------------------------------------------------------------------------

    def _is_held_back(self, request: V) -> bool:
        """Whether a request cannot be admitted in this step, whatever else there is room for."""
        raise NotImplementedError

    def _pass_over(self, request: V) -> bool:
        """Leave out a request that is held back; False: no request behind it is looked at."""
        return False

    def _pad(self, request: V, prefix_len: int) -> int:
        """How many tokens that stand for drafts a request gets behind its own."""
        return 0

    def _leave_queue(self, request: V) -> None:
        """Remove a request that is admitted from the queue that it waits in."""
        self._waiting.remove(request)

    def _refuse(self, request: V, hit: Hit) -> None:
        """Called for a request that does not fit into the free blocks."""

    def _place(self, request: V, hit: Hit, chunk: Chunk, end: int) -> None:
        """Give a request its blocks; it computes its tokens up to `end`."""
        raise NotImplementedError
