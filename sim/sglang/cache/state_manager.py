"""KV memory of an SGLang server whose model has state-space or linear attention layers, too.

Follows SGLang 0.5.23 (mem_cache/unified_cache/components/mamba.py, mem_cache/memory_pool.py,
`HybridReqToTokenPool`, and mem_cache/allocation.py; docs/explanation/sglang.md, rules 30 to 33).
Those layers keep one state for all tokens before, instead of KV for each. A second pool has the
states of running requests and those of cached prefixes.
"""

from collections.abc import Iterable, Sequence

from sim.core.errors import InvariantError
from sim.core.tokens import Prompt
from sim.engine.page_pool import PagePool, Span
from sim.engine.request import OutputTokens
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.request_kv import RequestKV
from sim.sglang.cache.state_cache import StateRadixCache
from sim.sglang.cache.state_settings import StateSettings
from sim.sglang.request import SglangRequest


class StateRequestKV(RequestKV):
    """The KV of one request, and its states.

    Attributes:
        num_states: states that the request has.
        branch_len: where its prompt leaves a cached path that had KV, but no state there; 0: it
            does not, or no state can be tracked there.
        tracked_len: tokens before the latest state that it has tracked; 0: it has tracked none
            since the cache took one.
        prefilled_len: where its last prefill step ended.
        untracked: tokens after which a decode step would have tracked a state, but was a mixed one.
        ended_len: tokens before the one that ended it; 0: it runs.
    """

    __slots__ = (
        "branch_len",
        "ended_len",
        "num_states",
        "prefilled_len",
        "tracked_len",
        "untracked",
    )

    def __init__(self, prompt: Prompt, outputs: OutputTokens, no_pages: Span) -> None:
        super().__init__(prompt, outputs, no_pages)
        self.num_states = self.branch_len = self.tracked_len = self.prefilled_len = 0
        self.ended_len = 0
        self.untracked: list[int] = []


class StateKVCacheManager(KVCacheManager):
    """Finds, allocates, caches and frees the KV and the states of requests."""

    def __init__(self, pool: PagePool, cache: StateRadixCache, settings: StateSettings) -> None:
        super().__init__(pool, cache)
        self.states = cache
        self.state_pool = cache.side_pool
        self.settings = settings

    def new_request(self, prompt: Prompt, outputs: OutputTokens) -> RequestKV:
        return StateRequestKV(prompt, outputs, self.pool.empty)

    @property
    def used_share(self) -> float:
        num_states = self.settings.num_states
        num_used = num_states - self.state_pool.free_units - self.states.side_evictable
        return max(super().used_share, num_used / num_states)

    # ---- prefixes ------------------------------------------------------------------------------

    def find_prefix(self, kv: RequestKV, num_tokens: int, limit: int) -> int:
        node, full_len = self.states.find(kv.token_ids(num_tokens), limit)
        kv.found = node
        branch_len = full_len // self.settings.checkpoint_tokens * self.settings.checkpoint_tokens
        _state_kv(kv).branch_len = branch_len if branch_len > node.end else 0
        return node.end

    def prepare_candidate(self, kv: RequestKV) -> None:
        """Get the candidate a state of its own, to copy the prefix's into."""
        own, found = _state_kv(kv), kv.found
        if found is None or found.parent is None or own.num_states:
            return
        if not self.state_pool.free_units:
            self.states.lock(found)
            self.states.evict_side(1)
            self.states.unlock(found)
        self._take(own, 1)

    def refuse_candidate(self, kv: RequestKV) -> None:
        own = _state_kv(kv)
        self.state_pool.free(own.num_states)
        own.num_states = 0

    def _take(self, kv: StateRequestKV, num_states: int) -> None:
        self.state_pool.take(num_states)
        kv.num_states += num_states

    # ---- growth --------------------------------------------------------------------------------

    def extend(self, rows: Iterable[tuple[RequestKV, int, int]]) -> None:
        rows = list(rows)
        needed = 1 + self.settings.num_tracked
        missing = sum([needed - _state_kv(kv).num_states for kv, _, _ in rows])
        self.states.evict_side(missing)
        for kv, prefix_len, extend_len in rows:
            own = _state_kv(kv)
            self._take(own, needed - own.num_states)
            own.prefilled_len = prefix_len + extend_len
            if self.settings.num_tracked:
                self._track_prefill(own, prefix_len, extend_len)
        super().extend(rows)

    def _track_prefill(self, kv: StateRequestKV, prefix_len: int, extend_len: int) -> None:
        """A prefill tracks the last state that it can, or the one where its prompt branches off."""
        settings = self.settings
        if extend_len < settings.checkpoint_tokens:
            return
        tracked = extend_len // settings.checkpoint_tokens * settings.checkpoint_tokens
        kernel = extend_len // settings.kernel_tokens * settings.kernel_tokens
        kv.tracked_len = prefix_len + tracked
        end = prefix_len + (extend_len if kernel == tracked else tracked + 1)
        branch = kv.branch_len
        if prefix_len < branch < end and not (branch - prefix_len) % settings.checkpoint_tokens:
            kv.tracked_len = branch

    def note_mixed(self, rows: Sequence[SglangRequest]) -> None:
        """A mixed step computes states of its rows, but tracks none."""
        settings = self.settings
        if settings.num_tracked:
            for row in rows:
                if not row.seq_len % settings.track_tokens:
                    _state_kv(row.kv).untracked.append(row.seq_len)

    def note_end(self, request: SglangRequest) -> None:
        _state_kv(request.kv).ended_len = request.num_tokens - 1

    # ---- giving back ---------------------------------------------------------------------------

    def checkpoint(
        self,
        kv: RequestKV,
        num_tokens: int,
        *,
        prompt_len: int,
        seq_len: int,
        is_finished: bool = False,
    ) -> None:
        """Give whole pages and a state to the prefix cache.

        With tracked states, tokens up to the latest one are given, and none if there is none.
        """
        own = _state_kv(kv)
        num_inserted = self._num_inserted(own, num_tokens, is_finished=is_finished)
        own.tracked_len = 0
        aligned = self.floor_page(num_inserted)
        if not aligned:
            return
        if not is_finished:
            self.states.evict_side(1)
            self._take(own, 1)
        self._redeem(kv, seq_len)
        given, kept = kv.pages.split((aligned - kv.protected_len) // self.page_size)
        node, took = self.states.insert_state(
            kv.token_ids(aligned), kv.protected_len, given, kv.locked
        )
        self._count_use(kv, node, aligned)
        if self.cache.keeps_priorities:
            self.cache.note_priority(node, kv.priority)
        self._keep(kv, node, kept)
        if took or not is_finished:
            own.num_states -= 1
            if not took:
                self.state_pool.free(1)

    def _num_inserted(self, kv: StateRequestKV, num_tokens: int, *, is_finished: bool) -> int:
        settings = self.settings
        if not settings.num_tracked:
            return num_tokens
        if is_finished:
            # Under overlap, a step beyond the end may run: the state after it does not count.
            last = kv.ended_len // settings.track_tokens * settings.track_tokens
            while last in kv.untracked:
                last -= settings.track_tokens
            if last > kv.prefilled_len:
                return last
        return kv.tracked_len

    def release(self, kv: RequestKV, seq_len: int) -> None:
        self.refuse_candidate(kv)
        own = _state_kv(kv)
        own.branch_len = own.tracked_len = own.prefilled_len = own.ended_len = 0
        own.untracked.clear()
        super().release(kv, seq_len)


def _state_kv(kv: RequestKV) -> StateRequestKV:
    if not isinstance(kv, StateRequestKV):
        raise InvariantError("a request has no states")
    return kv
