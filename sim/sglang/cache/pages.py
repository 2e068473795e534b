"""The pages of an SGLang server's KV memory and its parts, and how steps get memory.

Follows SGLang 0.5.23 (docs/explanation/sglang.md, rules 11 and 12).
"""

from collections.abc import Iterable, Sequence

from sim.engine.decode_run import PageDemand
from sim.engine.page_pool import PagePool, Span
from sim.engine.running_batch import KVMemory
from sim.sglang.cache.part import MemoryPart
from sim.sglang.cache.preallocation import Preallocation, Reserve, WindowBudget
from sim.sglang.cache.tree.prefix_cache import PrefixCache
from sim.sglang.request import RequestKV, SglangRequest


class KVPages(KVMemory):
    """Allocates pages, evicts cached ones for them, and tells the parts what the scheduler does.

    Attributes:
        pool: the pages of layers with full attention.
        parts: what the memory has beside these pages, in the order in which they are told.
        limits_passes: whether `new_pass_limit` returns a limit.
    """

    def __init__(self, pool: PagePool, cache: PrefixCache, parts: Sequence[MemoryPart]) -> None:
        self.pool = pool
        self.cache = cache
        self.parts = tuple(parts)
        self.page_size = pool.page_size
        self.num_pages = pool.num_pages
        self.limits_passes = any(part.limits_passes for part in self.parts)

    # ---- sizes ---------------------------------------------------------------------------------

    @property
    def num_free_pages(self) -> int:
        return self.pool.num_free_pages

    @property
    def evictable_tokens(self) -> int:
        return self.cache.evictable_tokens

    @property
    def available_tokens(self) -> int:
        """Free tokens, counting those that could be evicted."""
        return self.pool.num_free_pages * self.page_size + self.cache.evictable_tokens

    @property
    def used_share(self) -> float:
        """Share of the pool in use that cannot be evicted; with more pools, of the fullest."""
        used = (self.pool_tokens - self.available_tokens) / self.pool_tokens
        for part in self.parts:
            used = max(used, part.used_share())
        return used

    def num_affordable_steps(self, num_steps: int, demand: PageDemand) -> int:
        num_steps = super().num_affordable_steps(num_steps, demand)
        for part in self.parts:
            num_steps = part.num_affordable_steps(num_steps, demand)
        return num_steps

    @property
    def host_used_tokens(self) -> int | None:
        for part in self.parts:
            if (num_tokens := part.host_used_tokens()) is not None:
                return num_tokens
        return None

    # ---- growth --------------------------------------------------------------------------------

    def evict_until_free(self, num_tokens: int) -> bool:
        """Evict whole leaves until `num_tokens` tokens are free; False if that is impossible."""
        is_free = self._evict_pages(num_tokens)
        for part in self.parts:
            is_free = part.evict_until_free(num_tokens) and is_free
        return is_free

    def _evict_pages(self, num_tokens: int) -> bool:
        shortfall = num_tokens - self.free_tokens
        if shortfall <= 0:
            return True
        self.cache.evict(shortfall)
        return self.free_tokens >= num_tokens

    def extend(self, rows: Iterable[tuple[RequestKV, int, int]]) -> None:
        """Allocate pages for prefill rows `(kv, prefix_len, extend_len)`.

        As in SGLang (rule 12), memory is freed for exactly these tokens at page size 1, and for one
        more page per row at larger page sizes.

        Raises InvariantError: the pool is too small. Admission must prevent this.
        """
        rows = list(rows)
        for part in self.parts:
            part.begin_extend(rows)
        num_tokens = sum(extend_len for _, _, extend_len in rows)
        slack = self.page_size * len(rows) if self.page_size > 1 else 0
        self.evict_until_free(num_tokens + slack)
        for kv, prefix_len, extend_len in rows:
            self._add_pages(kv, self._num_pages_of(prefix_len, extend_len))
        for part in self.parts:
            part.extended(rows)

    # ---- prompts that are computed elsewhere ----------------------------------------------------

    def preallocations(self, reserve: Reserve) -> tuple[Preallocation, ...]:
        """The limits of all pools for prompts that are computed elsewhere."""
        limits = [part.preallocation(reserve) for part in self.parts]
        own = Preallocation(self.pool_tokens, self.page_size, self._count_available, reserve)
        return (own, *[limit for limit in limits if limit is not None])

    def _count_available(self) -> int:
        return self.available_tokens

    def can_hold(self, kv: RequestKV) -> bool:
        """Whether the parts can give the request what every request has; evicts for it."""
        return all(part.can_hold(kv) for part in self.parts)

    def allocate(self, kv: RequestKV, prefix_len: int, num_tokens: int) -> None:
        """Allocate pages for `num_tokens` tokens after a request's prefix that come from elsewhere.

        As in SGLang (`_pre_alloc` in disaggregation/decode.py), memory is freed for these pages
        and for the part of the prefix that is in host memory alone, and for nothing else.

        Raises InvariantError: a pool is too small. Admission must prevent this.
        """
        end = prefix_len + num_tokens
        self._evict_pages(
            self._num_pages_of(kv.protected_len, end - kv.protected_len) * self.page_size
        )
        self._add_pages(kv, self._num_pages_of(prefix_len, num_tokens))
        kv.protected_len = prefix_len
        for part in self.parts:
            part.allocated(kv, end)

    def note_received(self, kv: RequestKV) -> None:
        """The KV that `allocate` made room for has arrived, and the request decodes from now on."""
        for part in self.parts:
            part.received(kv)

    def _num_pages_of(self, prefix_len: int, num_tokens: int) -> int:
        end = self.ceil_page(prefix_len + num_tokens)
        return (end - self.ceil_page(prefix_len)) // self.page_size

    def _add_pages(self, kv: RequestKV, num_pages: int) -> None:
        if num_pages > self.pool.num_free_pages:
            for part in self.parts:
                if (error := part.error_if_full()) is not None:
                    raise error
        self.pool.reserve(num_pages)
        kv.pages = kv.pages.concat(self.pool.take_reserved(num_pages))

    def can_decode(self, num_new_pages: int) -> bool:
        """Whether a decode step that needs `num_new_pages` pages fits; evicts what it must."""
        return self.evict_until_free(num_new_pages * self.page_size)

    def decode(self, num_rows: int, num_new_pages: int) -> None:
        """Reserve the new pages of a decode step of `num_rows` rows.

        As in SGLang (rule 12), memory is freed for one page per row, even if fewer are needed.
        """
        self.evict_until_free(num_rows * self.page_size)
        self.reserve_pages(num_new_pages)

    def decode_with_drafts(self, num_rows: int, num_tokens: int, num_new_pages: int) -> None:
        """The same for a step whose rows get places for `num_tokens` more tokens.

        As in SGLang 0.5.23 (`alloc_for_spec_decode` in mem_cache/allocation.py), memory is freed as
        for prefill rows.
        """
        if num_tokens:
            slack = self.page_size * num_rows if self.page_size > 1 else 0
            self.evict_until_free(num_tokens + slack)
            self.reserve_pages(num_new_pages)

    def reserve_pages(self, num_pages: int) -> None:
        self.pool.reserve(num_pages)
        for part in self.parts:
            part.reserved(num_pages)

    # ---- the pages of a request ------------------------------------------------------------------

    def spans(self, kv: RequestKV, seq_len: int) -> list[Span]:
        """The pages of a request's tokens in order: pages of the prefix cache, then its own."""
        self._take_reserved(kv, seq_len)
        spans = [kv.pages]
        node = kv.locked
        while node is not None and node.parent is not None:
            spans.append(node.pages)
            node = node.parent
        return spans[::-1]

    def _take_reserved(self, kv: RequestKV, seq_len: int) -> None:
        """Collect the pages that decode steps have reserved for a request."""
        due = (self.ceil_page(seq_len) - kv.protected_len) // self.page_size - len(kv.pages)
        if due:
            kv.pages = kv.pages.concat(self.pool.take_reserved(due))

    # ---- moments of the scheduler ----------------------------------------------------------------

    def new_pass_limit(self) -> WindowBudget | None:
        """What limits a prefill pass beside the pool's tokens; None: nothing."""
        for part in self.parts:
            if part.limits_passes:
                return part.new_pass_limit()
        return None

    def begin_decision(self, now_ns: int, device_free_ns: int) -> None:
        """A decision begins.

        The steps launched so far end at `device_free_ns`.
        """
        for part in self.parts:
            part.begin_decision(now_ns, device_free_ns)

    def end_decision(self) -> int:
        """A decision ends; returns how long it has waited for copies."""
        return max([part.end_decision() for part in self.parts]) if self.parts else 0

    def next_change_ns(self, now_ns: int) -> int | None:
        """When a decision may find memory changed by itself; None: it stays as it is."""
        for part in self.parts:
            if (change_ns := part.next_change_ns(now_ns)) is not None:
                return change_ns
        return None

    @property
    def is_copying(self) -> bool:
        return any(part.is_copying() for part in self.parts)

    def begin_prefill(self) -> None:
        """A prefill batch is about to be launched."""
        for part in self.parts:
            part.begin_prefill()

    def prepare_candidate(self, kv: RequestKV) -> None:
        """A pass has found a candidate's prefix, and is about to judge the candidate."""
        for part in self.parts:
            part.prepare(kv)

    def refuse_candidate(self, kv: RequestKV) -> None:
        """The candidate was not admitted."""
        for part in self.parts:
            part.refuse(kv)

    def begin_decode(self, rows: Sequence[SglangRequest]) -> None:
        """These rows are about to get memory for a decode step."""
        for part in self.parts:
            part.begin_decode(rows)

    def decoded_again(
        self, rows: Sequence[SglangRequest], num_steps: int, *, overlaps: bool
    ) -> None:
        """These rows have begun `num_steps` further decode steps, which all were alike.

        The last of them is in flight. If the schedule `overlaps`, each of them was decided before
        the result of the one before was known.
        """
        for part in self.parts:
            part.decoded_again(rows, num_steps, overlaps=overlaps)

    def note_mixed(self, rows: Sequence[SglangRequest]) -> None:
        """These rows decode in a step that prefills, too."""
        for part in self.parts:
            part.mixed(rows)

    def verified(self, kv: RequestKV, num_computed: int, num_sampled: int) -> None:
        """A decode step has verified drafts of a row.

        KV of `num_computed` tokens is known to be right now; this step has added `num_sampled` of
        them.
        """
        for part in self.parts:
            part.verified(kv, num_computed, num_sampled)

    def note_end(self, request: SglangRequest) -> None:
        """The request's last token is known; its memory is given back next."""
        for part in self.parts:
            part.end(request)

    def error_if_stuck(self, request: SglangRequest) -> Exception | None:
        """As in `MemoryPart`, of all parts."""
        for part in self.parts:
            if (error := part.error_if_stuck(request)) is not None:
                return error
        return None
