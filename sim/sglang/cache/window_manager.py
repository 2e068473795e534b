"""KV memory of an SGLang server with two pools: one for layers with a sliding window.

Follows SGLang 0.5.23 (mem_cache/allocator/swa.py, mem_cache/common.py and unified_radix_cache.py;
docs/explanation/sglang.md, rules 22 to 25). Every token has KV in both pools at first; in the
window pool it is freed when the token has left the window.
"""

from collections.abc import Iterable, Sequence

from sim.core.errors import InputError, InvariantError
from sim.core.tokens import Prompt
from sim.engine.page_pool import PagePool, Span
from sim.engine.request import OutputTokens
from sim.engine.running_batch import PageDemand
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.pass_limit import PassLimit
from sim.sglang.cache.prefix_cache import PrefixCache
from sim.sglang.cache.request_kv import RequestKV
from sim.sglang.cache.side_pool import SidePool
from sim.sglang.cache.window_budget import WindowBudget
from sim.sglang.cache.window_cache import WindowRadixCache
from sim.sglang.cache.window_settings import WindowSettings
from sim.sglang.request import SglangRequest


class WindowRequestKV(RequestKV):
    """The KV of one request in both pools.

    Of its own tokens, those from `window_from` on are in the window pool, too.

    Attributes:
        window_from: KV of the tokens before this position was freed in the window pool, as far as
            it was the request's own.
        lock_start: where the tokens begin whose KV in the window pool is locked.
        branch_len: layers without a window could use this many cached tokens, which is more than
            the prefix found; 0: they could use no more.
        num_chunks: prefill steps since its admission.
    """

    __slots__ = ("branch_len", "lock_start", "num_chunks", "window_from")

    def __init__(self, prompt: Prompt, outputs: OutputTokens, no_pages: Span) -> None:
        super().__init__(prompt, outputs, no_pages)
        self.window_from = self.lock_start = self.branch_len = self.num_chunks = 0

    @property
    def own_window_from(self) -> int:
        """Where the request's own KV in the window pool begins."""
        return max(self.window_from, self.protected_len)


class WindowKVCacheManager(KVCacheManager):
    """Finds, allocates, caches and frees the KV of requests in both pools."""

    def __init__(
        self,
        pool: PagePool,
        cache: PrefixCache,
        window_pool: SidePool,
        settings: WindowSettings,
        chunk_in_flight: int = 0,
        *,
        compares_pairs: bool = False,
    ) -> None:
        """Make the memory.

        Args:
            pool: the pool of layers without a window.
            cache: a WindowRadixCache, or one that never hits.
            window_pool: the window pool.
            settings: the window's.
            chunk_in_flight: tokens that a chunk in flight may have when the next one is decided:
                the chunk size under overlap, otherwise 0.
            compares_pairs: as for one pool.
        """
        super().__init__(pool, cache, compares_pairs=compares_pairs)
        self.window_pool = window_pool
        self.settings = settings
        self.windows = cache if isinstance(cache, WindowRadixCache) else None
        self._chunk_in_flight = chunk_in_flight
        # A cached prefix must end with a whole window, wherever its last page ends.
        self._kept = settings.window
        if self.windows is not None:
            self._kept = self.ceil_page(max(settings.window, self.page_size))

    def new_request(self, prompt: Prompt, outputs: OutputTokens) -> RequestKV:
        return WindowRequestKV(prompt, outputs, self.pool.empty)

    # ---- sizes ---------------------------------------------------------------------------------

    @property
    def window_available_tokens(self) -> int:
        """Free tokens of the window pool, counting those that could be evicted."""
        evictable = 0 if self.windows is None else self.windows.side_evictable
        return self.window_pool.free_units + evictable

    @property
    def used_share(self) -> float:
        num_tokens = self.window_pool.num_units
        used = (num_tokens - self.window_available_tokens) / num_tokens
        return max(super().used_share, used)

    @property
    def limits_passes(self) -> bool:
        return True

    def new_pass_limit(self) -> PassLimit:
        return WindowBudget(self)

    def error_if_stuck(self, request: SglangRequest) -> InputError:
        """SGLang would wait for ever."""
        return InputError(
            f"request {request.rid} of {request.num_tokens} tokens never fits into the"
            f" {self.window_pool.num_units} tokens of the pool for sliding windows, although"
            " nothing else runs; SGLang would keep it waiting for ever",
            key=("scheduler", "swa_full_tokens_ratio"),
        )

    # ---- prefixes ------------------------------------------------------------------------------

    def find_prefix(self, kv: RequestKV, num_tokens: int, limit: int) -> int:
        if self.windows is None:
            return 0
        limit = max(limit - self._fewer, 0)
        node, full_len = self.windows.find(self._keys(kv, num_tokens), limit)
        kv.found = node
        _window_kv(kv).branch_len = full_len if full_len > node.end else 0
        return node.end

    def lock_prefix(self, kv: RequestKV) -> None:
        super().lock_prefix(kv)
        self._lock_window(kv)

    def _lock_window(self, kv: RequestKV) -> None:
        if self.windows is not None and kv.locked is not None:
            _window_kv(kv).lock_start = self.windows.lock_window(kv.locked)

    def unlock_prefix(self, kv: RequestKV) -> None:
        self._unlock_window(kv)
        super().unlock_prefix(kv)

    def _unlock_window(self, kv: RequestKV) -> None:
        if self.windows is not None and kv.locked is not None:
            self.windows.unlock_window(kv.locked, _window_kv(kv).lock_start)

    # ---- growth --------------------------------------------------------------------------------

    def evict_until_free(self, num_tokens: int) -> bool:
        has_room = super().evict_until_free(num_tokens)
        if self.windows is not None:
            self.windows.evict_side(num_tokens)
        return has_room and self.window_pool.free_units >= num_tokens

    def extend(self, rows: Iterable[tuple[RequestKV, int, int]]) -> None:
        rows = list(rows)
        for kv, prefix_len, _ in rows:
            own = _window_kv(kv)
            if self.windows is None:
                self._slide_chunk(own, prefix_len)
            own.num_chunks += 1
        super().extend(rows)
        self.window_pool.take(
            sum(self.ceil_page(start + length) - self.ceil_page(start) for _, start, length in rows)
        )

    def _slide_chunk(self, kv: WindowRequestKV, prefix_len: int) -> None:
        """Without a prefix cache, a chunk frees what earlier chunks have behind the window."""
        if not self._chunk_in_flight:
            self._slide(kv, prefix_len)
        elif kv.num_chunks >= 2:
            self._slide(kv, prefix_len - self._chunk_in_flight)

    def promise_pages(self, num_pages: int) -> None:
        super().promise_pages(num_pages)
        self.window_pool.take(num_pages * self.page_size)

    def decode(self, num_rows: int, num_new_pages: int) -> None:
        super().decode(num_rows, num_new_pages)
        self.window_pool.take(num_new_pages * self.page_size)

    def decode_with_drafts(self, num_rows: int, num_tokens: int, num_new_pages: int) -> None:
        super().decode_with_drafts(num_rows, num_tokens, num_new_pages)
        self.window_pool.take(num_new_pages * self.page_size)

    def num_affordable_steps(self, num_steps: int, demand: PageDemand) -> int:
        """Without what leaves the windows meanwhile: fewer steps than there is room for."""
        num_steps = super().num_affordable_steps(num_steps, demand)
        spares = self.windows is not None and self.windows.side_evictable > 0
        free_pages = self.window_pool.free_units // self.page_size
        return demand.num_affordable(num_steps, free_pages, spares=spares)

    # ---- what leaves the window ----------------------------------------------------------------

    def begin_decode(self, rows: Sequence[SglangRequest]) -> None:
        """Free what has left the rows' windows: SGLang 0.5.23's `maybe_evict_swa` (rule 24).

        The first decode step of a row frees nothing: its prefill may still run.
        """
        for row in rows:
            if row.seq_len > row.extend_end:
                num_known = row.num_tokens
                self._slide_row(row.kv, num_known, num_known)

    def decoded_again(
        self, rows: Sequence[SglangRequest], num_steps: int, *, overlaps: bool
    ) -> None:
        for row in rows:
            last_len = row.num_tokens - overlaps
            self._slide_row(row.kv, last_len - num_steps + 1, last_len)

    def _slide_row(self, kv: RequestKV, first_len: int, last_len: int) -> None:
        """Free what leaves the window of a row in decode steps; from time to time it is freed.

        Args:
            kv: the row's KV.
            first_len: tokens of the row that are known when the first step is decided.
            last_len: the same for the last step; there is one token more at each step.
        """
        own, settings = _window_kv(kv), self.settings
        while True:
            due = own.window_from + settings.eviction_interval + settings.window + 1
            if due > first_len:
                first_len = due
            if first_len > last_len:
                return
            self._slide(own, first_len - 1)
            first_len += 1

    def _slide(self, kv: WindowRequestKV, num_tokens: int) -> None:
        """Free the request's own KV that is not in the window before `num_tokens`."""
        if num_tokens - self.settings.window < kv.window_from + 1:
            return
        begin = kv.own_window_from
        end = max(begin, self.floor_page(max(begin, num_tokens - self._kept)))
        self.window_pool.free(end - begin)
        kv.window_from = end

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
        """Give whole pages to the prefix cache, in both pools.

        A prompt that could use more cached tokens but for tombstones ends a node there, so that
        the window before this place can be found again: its other tokens are inserted later.
        """
        if self.windows is None:
            return
        own = _window_kv(kv)
        num_tokens -= self._fewer
        branches = kv.protected_len < own.branch_len <= num_tokens
        num_inserted = own.branch_len if branches else num_tokens
        if not is_finished:
            self._slide(own, num_inserted - 1)
        aligned = self.floor_page(num_inserted)
        if aligned <= 0:
            return
        self._redeem(kv, seq_len)
        given, kept = kv.pages.split((aligned - kv.protected_len) // self.page_size)
        node, _ = self.windows.insert_window(
            self._keys(kv, aligned + self._fewer),
            kv.protected_len,
            given,
            own.window_from,
            kv.locked,
        )
        self._count_use(kv, node, aligned)
        if self.cache.keeps_priorities:
            self.cache.note_priority(node, kv.priority)
        self._unlock_window(kv)
        self._keep(kv, node, kept)
        self._lock_window(kv)
        if branches:
            own.branch_len = 0
            if not is_finished:
                self._slide(own, num_tokens - 1)

    def release(self, kv: RequestKV, seq_len: int) -> None:
        own = _window_kv(kv)
        self.window_pool.free(self.ceil_page(seq_len) - own.own_window_from)
        own.window_from = own.branch_len = own.num_chunks = 0
        super().release(kv, seq_len)


def _window_kv(kv: RequestKV) -> WindowRequestKV:
    if not isinstance(kv, WindowRequestKV):
        raise InvariantError("a request has no KV in the window pool")
    return kv
