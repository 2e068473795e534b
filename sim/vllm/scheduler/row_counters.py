"""What steps that are decided row by row leave behind: what they launch, and what comes of it.

A row may compute several tokens: its last known one and its draft tokens. Results may come in
several steps later. Under async scheduling a step is decided before it is known how many drafts of
the step before are accepted. It counts on all of them, and what was rejected is taken back later
(rule 15 of docs/explanation/vllm.md).

vLLM 0.19.0 and 0.33.0: `_update_after_schedule` and `update_from_output` of `Scheduler`
(v1/core/sched/scheduler.py), and `AsyncScheduler` (async_scheduler.py).
"""

from sim.core.request import Status
from sim.engine.results.rows import RowLaunch
from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmRequest
from sim.vllm.scheduler.drafting import Drafting
from sim.vllm.scheduler.lockstep import mode_of
from sim.vllm.scheduler.running_pass import RunningPass


class RowCounters:
    """Moves the counters of the requests of one server that goes row by row."""

    def __init__(self, config: VllmConfig, memory: KVCacheCoordinator, drafting: Drafting) -> None:
        self._config = config
        self._memory = memory
        self._drafting = drafting
        self._num_decided = 0

    def launch(
        self, steps: RunningPass, prefill: list[VllmRequest], number: int
    ) -> RowLaunch[VllmRequest] | None:
        """What decision `number` computes; None: nothing."""
        self._num_decided = number
        rows = steps.rows
        if not (prefill or rows):
            return None
        num_drafts = [steps.num_drafts[row] for row in rows]
        chunked = tuple([request for request in prefill if request.is_prefilling])
        for row, num_row_drafts in zip(rows, num_drafts, strict=True):
            self._note_launched(row, 1 + num_row_drafts, 1 + num_row_drafts)
        for request in prefill:
            samples = not request.is_prefilling
            self._note_launched(request, request.extend_len, samples * (1 + request.padding))
        return RowLaunch(
            mode_of(prefill, rows),
            prefill,
            rows,
            chunked,
            drafts=num_drafts,
            contexts=[row.seq_len for row in rows],
            padding=[request.padding for request in prefill],
        )

    def _note_launched(self, request: VllmRequest, num_tokens: int, most_sampled: int) -> None:
        request.num_in_flight += num_tokens
        request.num_samples += most_sampled > 0
        if self._config.async_scheduling and most_sampled:
            request.num_placeholders += most_sampled
            request.num_drafts = self._drafting.num_tokens
            request.next_decode_step = self._num_decided + self._config.micro_batches

    def came(
        self,
        request: VllmRequest,
        *,
        num_tokens: int,
        num_drafts: int,
        num_sampled: int,
        num_kept: int,
        num_proposed: int,
    ) -> None:
        """A step has sampled tokens for a request; see `BaseScheduler.verified`.

        `num_tokens`: tokens that it computed for the request.
        """
        is_stale = request.result_came(num_tokens)
        request.num_samples -= 1
        is_async, rules = self._config.async_scheduling, self._config.rules
        num_rejected = num_drafts - (num_sampled - 1) if num_drafts else 0
        has_places = request.num_placeholders > 0
        if not is_stale:
            if request.seq_len > 0:
                # Tokens behind the end of the output were not computed for anything, either.
                request.seq_len -= num_rejected + num_sampled - num_kept
            if has_places:
                request.num_placeholders -= num_rejected + num_sampled
        if not is_async:
            request.num_drafts = num_proposed
        if is_stale or request.status is not Status.RUNNING:
            return
        if not (is_async or rules.caches_verified) or not (has_places or self._drafting.num_tokens):
            return
        if rules.caches_verified:
            num_cached = request.seq_len - request.num_in_flight
        else:
            num_cached = request.seq_len - request.num_placeholders
        self._memory.cache_blocks(request.kv, num_cached, request.num_tokens + num_kept)
