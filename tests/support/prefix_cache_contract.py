"""What every prefix cache promises."""

from collections.abc import Callable

import numpy as np

from sim.core.tokens import TokenIds
from sim.engine.page_pool import PageIds, PagePool
from sim.sglang.cache.tree.prefix_cache import PrefixCache
from tests.support.page_pool_contract import raises_invariant

MakeCache = Callable[[PagePool], PrefixCache]

_NUM_PAGES = 60


def _drawn_tokens(rng: np.random.Generator, page_size: int) -> TokenIds:
    """Whole pages of few different tokens, so that drawn sequences share prefixes."""
    num_pages = int(rng.integers(1, 8))
    return np.repeat(rng.integers(0, 2, num_pages), page_size).astype(np.int64)


def _insert(cache: PrefixCache, pool: PageIds, token_ids: TokenIds) -> int:
    num_pages = len(token_ids) // pool.page_size
    pool.reserve(num_pages)
    return cache.insert(token_ids, 0, pool.take_reserved(num_pages))[1]


def _filled(make_cache: MakeCache, page_size: int) -> tuple[PrefixCache, PageIds, list[TokenIds]]:
    """A cache with some sequences; a disabled cache stays empty."""
    pool = PageIds(_NUM_PAGES, page_size)
    cache = make_cache(pool)
    rng = np.random.default_rng(page_size)
    sequences = [_drawn_tokens(rng, page_size) for _ in range(8)]
    if cache.enabled:
        for token_ids in sequences:
            _insert(cache, pool, token_ids)
    return cache, pool, sequences


def _num_cached(cache: PrefixCache) -> int:
    return cache.evictable_tokens + cache.protected_tokens


class PrefixCacheContract:
    """Fixture `make_cache: Callable[[PagePool], PrefixCache]`."""

    page_sizes = (1, 4)

    def test_cache_insert_is_found_whole_pages_only(self, make_cache: MakeCache) -> None:
        """A match finds whole pages of what was inserted, and never goes past its limit."""
        for page_size in self.page_sizes:
            cache, _, sequences = _filled(make_cache, page_size)
            for token_ids in sequences:
                for limit in range(len(token_ids) + 1):
                    found = limit // page_size * page_size if cache.enabled else 0
                    assert cache.match(token_ids, limit).num_tokens == found
                longer = np.append(token_ids, np.full(page_size, 9))
                found = len(token_ids) if cache.enabled else 0
                assert cache.match(longer, len(longer)).num_tokens == found

    def test_cache_insert_of_known_tokens_frees_the_duplicates(self, make_cache: MakeCache) -> None:
        """Pages whose tokens are cached already are freed."""
        for page_size in self.page_sizes:
            cache, pool, sequences = _filled(make_cache, page_size)
            if not cache.enabled:
                assert raises_invariant(lambda: _insert(cache, pool, sequences[0]))  # noqa: B023
                return
            num_free = pool.num_free_pages
            for token_ids in sequences:
                assert _insert(cache, pool, token_ids) == len(token_ids)
                assert pool.num_free_pages == num_free

    def test_cache_match_changes_nothing(self, make_cache: MakeCache) -> None:
        """A look-up does not change which leaves are evicted, nor their order."""
        for page_size in self.page_sizes:
            looked, looked_pool, sequences = _filled(make_cache, page_size)
            other, other_pool, _ = _filled(make_cache, page_size)
            while True:
                for token_ids in sequences:
                    found = looked.match(token_ids, len(token_ids)).num_tokens
                    assert found == other.match(token_ids, len(token_ids)).num_tokens
                freed = looked.evict(1)
                assert freed == other.evict(1)
                assert looked_pool.num_free_pages == other_pool.num_free_pages
                for token_ids in reversed(sequences):
                    looked.match(token_ids, len(token_ids))
                if not freed:
                    break

    def test_cache_locks_balance(self, make_cache: MakeCache) -> None:
        """Locking protects a path's tokens; an unlock for each lock makes them evictable again."""
        for page_size in self.page_sizes:
            cache, _, sequences = _filled(make_cache, page_size)
            before = cache.evictable_tokens, cache.protected_tokens
            nodes = [cache.touch(cache.match(ids, len(ids))) for ids in sequences]
            for node in nodes * 2:
                cache.lock(node)
                assert _num_cached(cache) == sum(before)
                assert cache.protected_tokens >= node.end
            for node in nodes * 2:
                cache.unlock(node)
            assert (cache.evictable_tokens, cache.protected_tokens) == before

    def test_cache_evict_spares_what_is_locked(self, make_cache: MakeCache) -> None:
        """Evictable tokens go, locked ones stay, and the pool gets the reported number back."""
        for page_size in self.page_sizes:
            cache, pool, sequences = _filled(make_cache, page_size)
            kept = sequences[0]
            cache.lock(cache.touch(cache.match(kept, len(kept))))
            evictable, protected = cache.evictable_tokens, cache.protected_tokens
            num_free = pool.num_free_pages
            assert cache.evict(10**6) == evictable
            assert (cache.evictable_tokens, cache.protected_tokens) == (0, protected)
            assert (pool.num_free_pages - num_free) * page_size == evictable
            found = len(kept) if cache.enabled else 0
            assert cache.match(kept, len(kept)).num_tokens == found

    def test_cache_evict_frees_enough_or_all(self, make_cache: MakeCache) -> None:
        """An eviction frees at least what was asked for, or all that can be evicted."""
        for page_size in self.page_sizes:
            for asked in range(30):
                cache, pool, _ = _filled(make_cache, page_size)
                evictable, num_free = cache.evictable_tokens, pool.num_free_pages
                freed = cache.evict(asked)
                assert min(asked, evictable) <= freed <= evictable
                assert (pool.num_free_pages - num_free) * page_size == freed
                assert cache.evictable_tokens == evictable - freed
