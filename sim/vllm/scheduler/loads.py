"""KV that a decode server fetches: blocks for a whole prompt first, then its KV.

vLLM 0.33.0: `Scheduler.schedule`, second loop, `_update_waiting_for_remote_kv`,
`_handle_failed_recving`, `_inflight_prefill_reserved_blocks` (v1/core/sched/scheduler.py);
`get_num_new_matched_tokens` (distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py).
"""

from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.cache.request_blocks import CacheHit, Chunk, RequestBlocks
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmRequest
from sim.vllm.scheduler.drafting import drafting_of


class Loads:
    """The requests of one decode server whose KV is on its way, or was.

    Attributes:
        loading: by rid, requests with blocks whose KV is not known to be there.
        ended: those of `loading` whose transfer has ended, and whether it has failed. The next pass
            that looks at them takes them out.
        orphans: by rid, blocks of requests that have ended while their KV was on its way, and the
            tokens in them.
        may_wait_for_ever: a prompt that takes nearly the whole pool never gets blocks beside those
            of its first step with drafts, until its client gives up (vLLM's, too).
        started: requests whose transfer begins with this decision, with the tokens found here.
        is_last_chance: nothing else will free blocks: no step is in flight, and no KV on its way.
    """

    def __init__(self, config: VllmConfig, memory: KVCacheCoordinator) -> None:
        self.loading: dict[str, VllmRequest] = {}
        self.ended: dict[str, bool] = {}
        self.orphans: dict[str, tuple[RequestBlocks, int]] = {}
        self.started: list[tuple[VllmRequest, int]] = []
        self.is_last_chance = False
        self._memory = memory
        self._leaves_out_last = config.has_states
        self._reserves = config.rules.reserves_for_loads
        drafting = drafting_of(config)
        # Places that a row needs for its first step with drafts.
        self._num_ahead = 0
        if drafting.num_tokens:
            self._num_ahead = 1 + drafting.num_tokens + drafting.lookahead
        self.may_wait_for_ever = self._reserves and self._num_ahead > 0
        # Requests with chunks of their prompts to come; those that
        # load need more blocks with drafts, and with states.
        self._prefilling: set[VllmRequest] = set()

    def has_to_wait(self, request: VllmRequest) -> bool:
        """Whether a request's KV is on its way; if it is lost, its blocks are freed."""
        if request.rid not in self.loading:
            return False
        is_lost = self.ended.pop(request.rid, None)
        if is_lost is None:
            return True
        del self.loading[request.rid]
        if is_lost:
            self._memory.free(request.kv, request.seq_len)
            request.seq_len = 0
        return False

    def num_wanted(self, request: VllmRequest) -> int:
        """Tokens of a prompt whose KV is fetched; with states, the last one is computed here."""
        return request.prompt_len - (self._leaves_out_last and request.prompt_len > 1)

    def begin(self, request: VllmRequest, hit: CacheHit, num_whole: int, num_spare: int) -> bool:
        """Allocate blocks for a whole prompt, if there is room beside what others still need.

        Args:
            request: a request without blocks.
            hit: what of its prompt is cached here.
            num_whole: see `KVCacheCoordinator.can_admit`.
            num_spare: see there, too.
        """
        memory, num_tokens = self._memory, self.num_wanted(request)
        chunk = Chunk(num_tokens, num_tokens, request.prompt_len)
        num_reserved = self._num_reserved() if self._reserves else 0
        if not memory.can_admit(hit, chunk, num_whole, num_spare, num_reserved):
            return False
        memory.admit(request.kv, hit, chunk)
        request.pulls = False
        request.seq_len = num_tokens
        self.loading[request.rid] = request
        self.started.append((request, hit.num_tokens))
        if self._num_ahead or self._leaves_out_last:
            self._prefilling.add(request)
        return True

    def _num_reserved(self) -> int:
        """Blocks that prompts in progress, and the first step of this one with drafts, need."""
        memory, num_ahead = self._memory, self._num_ahead
        num_blocks = memory.num_lookahead_blocks(num_ahead)
        for request in self._prefilling:
            if request.seq_len:
                num_tokens = request.num_tokens + num_ahead
                rest = Chunk(request.seq_len, num_tokens, request.prefill_end, num_ahead)
                num_blocks += memory.num_blocks_for_rest(request.kv, rest)
        return num_blocks

    def admitted(self, request: VllmRequest) -> None:
        """A request is admitted; it may have more chunks to come."""
        if request.pulls:
            # Nothing of its prompt has to be fetched.
            request.pulls = False
            self.started.append((request, request.prompt_len))
        if request.is_prefilling:
            self._prefilling.add(request)

    def launched(self, prefill: list[VllmRequest]) -> None:
        """A step computes these chunks of prompts."""
        for request in prefill:
            if not request.is_prefilling:
                self._prefilling.discard(request)

    def forget(self, request: VllmRequest) -> bool:
        """A request ends, or loses its blocks; whether its KV is still on its way."""
        self._prefilling.discard(request)
        is_loading = self.loading.pop(request.rid, None) is not None
        return self.ended.pop(request.rid, None) is None and is_loading
