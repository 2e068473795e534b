"""Takes requests into an SGLang server, and frees the KV and the slots that they hold."""

import numpy as np

from sim.core.request import RequestSpec, Status
from sim.core.tokens import ArrayPrompt, TokenSequence
from sim.engine.independent_rows import IndependentRows
from sim.engine.page_pool import Span
from sim.engine.request import OutputTokens
from sim.engine.scheduler import BaseScheduler
from sim.sglang.cache.manager import KVCacheManager, RequestKV
from sim.sglang.config import SchedulerConfig
from sim.sglang.request import SglangRequest

# SGLang 0.5.23 keeps a few tokens of the context free.
_SPARE_CONTEXT_TOKENS = 5
# `Req.set_finish_with_abort` puts this in the place of a prompt that is too long.
_ONE_TOKEN = ArrayPrompt(np.zeros(1, dtype=np.int64))


class SglangHoldings(BaseScheduler[SglangRequest]):
    """The part of the scheduler that keeps account of requests, their KV and their slots."""

    family = "sglang"

    def __init__(self, config: SchedulerConfig, kv: KVCacheManager) -> None:
        super().__init__(kv)
        if config.speculation is not None:
            self.running = IndependentRows(kv.page_size)
        self._config = config
        self._kv = kv
        self.poll_interval = config.scheduler_recv_interval
        self.ends_in_batch_order = True
        self._rules = config.rules
        # Rows that have finished and still count, until the next decode step.
        self._ended: list[SglangRequest] = []

    @property
    def _longest(self) -> int:
        """SGLang's `max_req_len`."""
        return min(self._config.context_length, self._config.pool_tokens) - 1

    def token_limit(self, prompt_len: int, max_new_tokens: int) -> int:
        """`max_new_tokens` as far as context and pool allow; at least 0 (rule 1)."""
        page_size, pool_tokens = self._kv.page_size, self._config.pool_tokens
        room = pool_tokens - self._kv.ceil_page(prompt_len) - page_size - 1
        return max(min(max_new_tokens, self._longest - prompt_len - 1, room), 0)

    def _is_too_long(self, prompt_len: int) -> bool:
        """SGLang 0.5.23: `validate_input_length` in managers/utils.py."""
        return prompt_len >= self._longest - _SPARE_CONTEXT_TOKENS

    def takes(self, prompt_len: int, max_new_tokens: int) -> bool:
        """False if the front end refuses the prompt, or if it would wait for ever (rule 1)."""
        if prompt_len >= self._config.context_length:
            return False
        num_tokens = 1 if self._is_too_long(prompt_len) else prompt_len
        num_tokens += min(
            self.token_limit(prompt_len, max_new_tokens), self._config.clip_max_new_tokens
        )
        return num_tokens + self._kv.page_size < self._config.pool_tokens

    def new_request(self, spec: RequestSpec, limit: int, outputs: OutputTokens) -> SglangRequest:
        config = self._config
        too_long = self._is_too_long(len(spec.prompt))
        kv = self._kv.new_request(_ONE_TOKEN if too_long else spec.prompt, outputs)
        request = self._state_of(spec, kv, limit)
        if too_long:
            request.prompt_len = 1
            request.end_status = Status.REJECTED
        if spec.priority is not None or config.enable_priority_scheduling:
            kv.priority = request.priority
        return request

    def _state_of(self, spec: RequestSpec, kv: RequestKV, limit: int) -> SglangRequest:
        return SglangRequest(spec, kv, limit=limit, priority=self._config.usual_priority)

    def _num_free_slots(self, num_held: int) -> int:
        """How many requests this prefill batch may have; `num_held` of them have slots already."""
        limit = self._config.max_running_requests
        return min(limit - self._num_rows, max(limit - self.num_slots_used + num_held, 0))

    def _drop_finished(self) -> bool:
        """Remove finished rows from the running batch; returns whether that makes room."""
        if not self.has_finished_rows:
            return False
        self.has_finished_rows = False
        finished = [r for r in self.running.requests if r.status is not Status.RUNNING]
        self.running.remove(finished)
        if self._rules.drops_finished_first:
            return bool(finished)
        self._ended += finished
        return False

    @property
    def _others_run(self) -> bool:
        """Requests run in other micro-batches of a pipeline."""
        return False

    @property
    def _has_rows(self) -> bool:
        return bool(self.running.requests or self._ended)

    @property
    def _num_rows(self) -> int:
        """Rows of SGLang's running batch."""
        return len(self.running.requests) + len(self._ended)

    def _match_prefix(self, request: SglangRequest) -> None:
        """Match a candidate's tokens but for the last one, which has to be computed (rule 4)."""
        num_tokens = request.fill_len = request.num_tokens
        request.found(self._kv.find_prefix(request.kv, num_tokens, num_tokens - 1))
        request.matched_len = request.prefix_len + request.kv.host_len

    def prefill_computed(self, request: SglangRequest) -> None:
        """Put the computed tokens into the prefix cache (rule 14)."""
        self._checkpoint(request, request.extend_end)

    def give_back(self, request: SglangRequest) -> None:
        """Put the request's tokens into the prefix cache, then free its KV and slot.

        The last token has KV only under overlap: a step was decided before that token was known to
        be the last.
        """
        num_tokens = min(request.seq_len, request.num_tokens)
        self._checkpoint(request, num_tokens, is_finished=True)
        self._release(request)

    def _checkpoint(
        self, request: SglangRequest, num_tokens: int, *, is_finished: bool = False
    ) -> None:
        self._kv.checkpoint(
            request.kv,
            num_tokens,
            prompt_len=request.prompt_len,
            seq_len=request.seq_len,
            is_finished=is_finished,
        )

    def _release(self, request: SglangRequest) -> None:
        self._kv.release(request.kv, request.seq_len)
        self.free_slot(request)

    def _release_for_later(self, request: SglangRequest, num_remaining: int) -> None:
        """Free the KV of a request that goes back to the queue (rule 11).

        As in SGLang, cached leaves are evicted until there is room for `retract_decode_steps`
        decode steps of `num_remaining` rows.
        """
        self._release(request)
        self._kv.evict_until_free(num_remaining * self._config.retract_decode_steps)
        request.status = Status.WAITING
        request.lose_prefix()
        request.matched_len = 0

    def token_ids(self, request: SglangRequest, num_tokens: int) -> TokenSequence:
        return request.kv.token_ids(num_tokens)

    def spans(self, request: SglangRequest, num_tokens: int) -> list[Span]:
        return self._kv.spans(request.kv, num_tokens)
