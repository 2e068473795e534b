"""The part of the KV memory for layers with a sliding window: a pool of their own.

Follows SGLang 0.5.23 (mem_cache/allocator/swa.py, mem_cache/common.py and
mem_cache/unified_cache/components/swa.py; docs/explanation/sglang.md, rules 22 to 25). Every token
has KV in both pools at first; in the window pool it is freed when the token has left the window.
"""

from collections.abc import Sequence

from sim.core.errors import InputError
from sim.engine.decode_run import PageDemand
from sim.sglang.cache.part import MemoryPart, PrefillRows
from sim.sglang.cache.pool_tree import UnitPool
from sim.sglang.cache.preallocation import (
    Preallocation,
    Reserve,
    WindowBudget,
    WindowPreallocation,
    WindowTail,
)
from sim.sglang.cache.settings import StateSettings, WindowSettings
from sim.sglang.cache.tree.radix_node import PrefixMatch
from sim.sglang.cache.window_tree import WindowTree
from sim.sglang.request import RequestKV, SglangRequest, WindowSlot


class WindowPart(MemoryPart):
    """The KV of requests in the window pool."""

    def __init__(
        self,
        settings: WindowSettings,
        pool: UnitPool,
        tree: WindowTree | None,
        page_size: int,
        *,
        chunk_in_flight: int = 0,
        compares_pairs: bool = False,
        states: StateSettings | None = None,
    ) -> None:
        """Make the part.

        Args:
            settings: the window's.
            pool: the window pool.
            tree: what the prefix cache knows of windows; None: there is no prefix cache.
            page_size: tokens in a page.
            chunk_in_flight: tokens that a chunk in flight may have when the next one is decided:
                the chunk size under overlap, otherwise 0.
            compares_pairs: the cache compares pairs of tokens (see `Pairs`).
            states: settings of the states that the cache keeps of other layers; None: of none.
        """
        super().__init__(pool, tree)
        self.limits_passes = True
        self._settings = settings
        self._pool = pool
        self._tree = tree
        self._page_size = page_size
        self._chunk_in_flight = chunk_in_flight
        self._fewer = int(compares_pairs)
        self._tail = WindowTail(settings.window, page_size, is_cached=tree is not None)
        self._states = states
        # A cached prefix must end with a whole window, wherever its last page ends.
        self._kept = settings.window
        if tree is not None:
            self._kept = self._ceil_page(max(settings.window, page_size))

    def _ceil_page(self, num_tokens: int) -> int:
        return -(-num_tokens // self._page_size) * self._page_size

    def _available_tokens(self) -> int:
        """Free tokens of the window pool, counting those that could be evicted."""
        evictable = 0 if self._tree is None else self._tree.evictable_units
        return self._pool.free_units + evictable

    # ---- passes --------------------------------------------------------------------------------

    def new_pass_limit(self) -> WindowBudget:
        return WindowBudget(
            self._settings.window, self._page_size, self._pool.num_units, self._available_tokens
        )

    def error_if_stuck(self, request: SglangRequest) -> InputError:
        """The error for a request that would wait forever in SGLang."""
        return InputError(
            f"request {request.rid} of {request.num_tokens} tokens never fits into the"
            f" {self._pool.num_units} tokens of the pool for sliding windows, although"
            " nothing else runs; SGLang would keep it waiting for ever",
            key=("scheduler", "swa_full_tokens_ratio"),
        )

    # ---- requests ------------------------------------------------------------------------------

    def join(self, kv: RequestKV) -> None:
        kv.window = WindowSlot()

    def found(self, kv: RequestKV, match: PrefixMatch) -> None:
        found_len = match.num_tokens + kv.host_len
        kv.window.branch_len = match.full_len if match.full_len > found_len else 0
        kv.host_window_len = 0
        if match.host is not None and self._tree is not None:
            missing = self._tree.nodes_to_load(match.end)
            kv.host_window_len = sum([node.num_tokens for node in missing])

    def lock(self, kv: RequestKV) -> None:
        if self._tree is not None and kv.locked is not None:
            kv.window.lock_start = self._tree.lock(kv.locked)

    def unlock(self, kv: RequestKV) -> None:
        if self._tree is not None and kv.locked is not None:
            self._tree.unlock(kv.locked, kv.window.lock_start)

    def release(self, kv: RequestKV, seq_len: int) -> None:
        slot = kv.window
        self._pool.free(self.num_held(kv, seq_len))
        slot.window_from = slot.branch_len = slot.num_chunks = 0

    def num_held(self, kv: RequestKV, seq_len: int) -> int:
        return 0 if kv.locked is None else self._ceil_page(seq_len) - _own_from(kv)

    # ---- growth --------------------------------------------------------------------------------

    def used_share(self) -> float:
        return (self._pool.num_units - self._available_tokens()) / self._pool.num_units

    def evict_until_free(self, num_tokens: int) -> bool:
        if self._tree is not None:
            self._tree.evict_until_free(num_tokens)
        return self._pool.free_units >= num_tokens

    def begin_extend(self, rows: PrefillRows) -> None:
        for kv, prefix_len, _ in rows:
            if self._tree is None:
                self._slide_chunk(kv, prefix_len)
            kv.window.num_chunks += 1

    def _slide_chunk(self, kv: RequestKV, prefix_len: int) -> None:
        """Without a prefix cache, a chunk frees what earlier chunks have behind the window."""
        if not self._chunk_in_flight:
            self._slide(kv, prefix_len)
        elif kv.window.num_chunks >= 2:
            self._slide(kv, prefix_len - self._chunk_in_flight)

    def extended(self, rows: PrefillRows) -> None:
        loads = self._tree is not None and self._tree.copies is not None
        for _, start, length in rows:
            num_tokens = self._ceil_page(start + length) - self._ceil_page(start)
            if loads and num_tokens > self._pool.free_units:
                raise InputError(
                    "is too small: SGLang ends here (alloc_for_extend of mem_cache/allocation.py),"
                    " because it counts what a load from host memory needs of windows that are on"
                    " the device as evictable",
                    key=("scheduler", "swa_full_tokens_ratio"),
                )
            self._pool.take(num_tokens)

    def reserved(self, num_pages: int) -> None:
        self._pool.take(num_pages * self._page_size)

    def num_affordable_steps(self, num_steps: int, demand: PageDemand) -> int:
        """Without what leaves the windows meanwhile: fewer steps than there is memory for."""
        spares = self._tree is not None and self._tree.evictable_units > 0
        free_pages = self._pool.free_units // self._page_size
        return demand.num_affordable(num_steps, free_pages, spares=spares)

    # ---- prompts that are computed elsewhere ----------------------------------------------------

    def preallocation(self, reserve: Reserve) -> Preallocation:
        """The last windows of prompts have to fit, or with pages of one token whole prompts."""
        pool = self._pool
        if self._page_size > 1:
            return WindowPreallocation(
                pool.num_units,
                self._available_tokens,
                reserve,
                tail=self._tail,
                evict_until_free=self.evict_until_free,
            )
        whole = Preallocation(pool.num_units, 1, self._free_for_prompts, reserve)
        whole.gives_back = True
        return whole

    def _free_for_prompts(self) -> int:
        """As SGLang counts: free in this pool, evictable in that of the other layers."""
        evictable = 0 if self._tree is None else self._tree.tree.evictable_tokens
        return self._pool.free_units + evictable

    def locked_for_transfer(self, kv: RequestKV) -> None:
        """The window before the end of the prompt is transferred: that of the prefix is of no use.

        SGLang 0.5.23: `release_swa` in `pop_preallocated` of disaggregation/decode.py.
        """
        if self._page_size > 1 and kv.locked is not None:
            self.unlock(kv)
            kv.window.lock_start = kv.locked.end

    def allocated(self, kv: RequestKV, end: int) -> None:
        kv.window.window_from = self._tail.start(end)
        num_tokens = self._ceil_page(end) - _own_from(kv)
        if self._page_size > 1:
            self.evict_until_free(num_tokens)
        elif num_tokens > self._pool.free_units:
            raise InputError(
                "is too small: SGLang ends here (_pre_alloc of disaggregation/decode.py), because"
                " with pages of one token it counts cached KV of the other layers as free for"
                " windows, too",
                key=("scheduler", "swa_full_tokens_ratio"),
            )
        self._pool.take(num_tokens)

    def received(self, kv: RequestKV) -> None:
        """The prompt was not computed here, so it has no window where it leaves a cached path."""
        kv.window.branch_len = 0

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

        `first_len` tokens of the row are known when the first step is decided, `last_len` when the
        last one is; there is one token more at each step.
        """
        slot, settings = kv.window, self._settings
        while True:
            due = slot.window_from + settings.eviction_interval + settings.window + 1
            if due > first_len:
                first_len = due
            if first_len > last_len:
                return
            self._slide(kv, first_len - 1)
            first_len += 1

    def _slide(self, kv: RequestKV, num_tokens: int) -> None:
        """Free the request's own KV that is not in the window before `num_tokens`."""
        if num_tokens - self._settings.window < kv.window.window_from + 1:
            return
        begin = _own_from(kv)
        end = num_tokens - self._kept
        if self._states is not None:
            # The cache may get what the request has tracked, with the window before it (SGLang
            # 0.5.23: `swa_retain_floor` in mem_cache/unified_radix_cache.py).
            tracked_len = self._states.last_tracked(kv.state, num_tokens)
            if tracked_len:
                end = min(end, tracked_len - self._settings.window)
        end = max(begin, end) // self._page_size * self._page_size
        end = max(begin, end)
        if self._pool.free_units + end - begin > self._pool.num_units:
            raise InputError(
                "is too small: SGLang ends here (free_group_end of mem_cache/allocator/swa.py),"
                " because it frees KV of a window twice",
                key=("scheduler", "swa_full_tokens_ratio"),
            )
        self._pool.free(end - begin)
        kv.window.window_from = end

    # ---- insertions ----------------------------------------------------------------------------

    def end_of_insertion(self, kv: RequestKV, num_tokens: int, *, is_finished: bool) -> int:
        """A prompt that could use more cached tokens but for tombstones ends a node there.

        So the window before this place can be found again. Its other tokens are inserted later.
        """
        if self._states is not None:
            # What the cache gets must end where a state is.
            return num_tokens
        slot = kv.window
        slot.branches = kv.protected_len < slot.branch_len <= num_tokens - self._fewer
        return slot.branch_len + self._fewer if slot.branches else num_tokens

    def begin_insertion(self, kv: RequestKV, num_tokens: int, *, is_finished: bool) -> None:
        if not is_finished:
            self._slide(kv, num_tokens - 1)
        if self._tree is not None:
            self._tree.window_from = kv.window.window_from

    def end_insertion(self, kv: RequestKV, num_tokens: int, *, is_finished: bool) -> None:
        slot = kv.window
        if slot.branches:
            slot.branch_len = 0
            if not is_finished:
                self._slide(kv, num_tokens - 1)


def _own_from(kv: RequestKV) -> int:
    """Where the request's own KV in the window pool begins."""
    return max(kv.window.window_from, kv.protected_len)
