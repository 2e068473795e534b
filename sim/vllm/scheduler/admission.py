"""The second half of a vLLM step: which waiting requests are admitted (rules 5 to 7).

Waiting requests are looked at in order, until one does not fit.
"""

from collections.abc import Callable
from functools import partial

from sim.core.request import Status
from sim.vllm.cache.manager import BlockManager
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmRequest
from sim.vllm.scheduler.step_limits import PromptLimits, chunk_tokens
from sim.vllm.scheduler.waiting_queue import FcfsQueue, PriorityQueue


class Admission:
    """Admits the waiting requests of one server.

    Attributes:
        refused: a waiting request that has no room until a request frees blocks.
    """

    def __init__(
        self,
        config: VllmConfig,
        *,
        kv: BlockManager,
        waiting: FcfsQueue | PriorityQueue,
        catch_up: Callable[[VllmRequest], None],
    ) -> None:
        """`catch_up` is called for a request when another one looks for blocks that it fills."""
        self.refused: VllmRequest | None = None
        self._config = config
        self._kv = kv
        self._waiting = waiting
        self._catch_up = catch_up
        self._num_admissions = 0

    def run(
        self,
        running: list[VllmRequest],
        budget: int,
        limits: PromptLimits,
    ) -> list[VllmRequest]:
        """Admit requests and return them; they are also appended to `running`.

        Args:
            running: all running requests.
            budget: tokens of the step that are left.
            limits: what limits the prompts of this step.
        """
        admitted: list[VllmRequest] = []
        while len(self._waiting) and budget > 0 and len(running) < self._config.max_active:
            request = self._waiting.next()
            if request is self.refused:
                break
            num_tokens = self._admit(request, budget, limits, beside_others=len(running) > 0)
            if not num_tokens:
                break
            budget -= num_tokens
            running.append(request)
            admitted.append(request)
        return admitted

    def _admit(
        self, request: VllmRequest, budget: int, limits: PromptLimits, *, beside_others: bool
    ) -> int:
        """Admit a request if it fits; returns the tokens that it gets, 0: it does not fit."""
        config, kv = self._config, self._kv
        num_tokens = request.num_tokens
        found = kv.find_prefix(request.kv, num_tokens)
        prefix_len = len(found) * kv.page_size
        if limits.are_deferred and prefix_len < num_tokens - 1:
            return 0
        num_new = chunk_tokens(num_tokens - prefix_len, limits.largest_chunk, num_tokens)
        if num_new > budget and not config.enable_chunked_prefill:
            return 0
        num_new = min(num_new, budget)
        needed = num_tokens if config.scheduler_reserve_full_isl else prefix_len + num_new
        if not kv.fits(found, needed, config.watermark_blocks if beside_others else 0):
            self.refused = request if self._stays_refused(request, found) else None
            return 0
        self.refused = None
        self._waiting.remove(request)
        kv.admit(request.kv, found, prefix_len + num_new, partial(self._catch_up, request))
        request.fill_len = num_tokens
        request.found(prefix_len)
        request.take_chunk(prefix_len + num_new)
        request.seq_len = prefix_len + num_new
        request.status = Status.RUNNING
        self._num_admissions += 1
        request.admission = self._num_admissions
        return num_new

    def _stays_refused(self, request: VllmRequest, found: list[int]) -> bool:
        """Whether a request for which there is no room has none before blocks are freed.

        Until then the running requests only take free blocks. So the request may find fewer blocks,
        and then needs as many more. It could find more only if a running request computed, or
        generated, what continues its prompt.

        If not the whole prompt has to fit, this holds for repeated decode steps alone, and only if
        it found no free blocks: with fewer of them it would need room for fewer tokens.
        """
        kv = self._kv
        if not self._config.scheduler_reserve_full_isl and kv.pool.num_free(found):
            return False
        return not kv.may_find_more(request.kv, len(found))
