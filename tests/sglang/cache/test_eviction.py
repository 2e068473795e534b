"""Which leaves are evicted first, seen by what can still be found."""

import numpy as np
import pytest

from sim.core.errors import InvariantError
from sim.core.tokens import stream_token_ids
from sim.engine.page_pool import PageIds
from sim.sglang.cache.tree.prefix_cache import NoPrefixCache
from sim.sglang.cache.tree.radix_cache import RadixCache


@pytest.fixture
def pool():
    return PageIds(100, 1)


@pytest.fixture
def cache(pool):
    return RadixCache(pool)


def tokens(*segments):
    return np.concatenate([stream_token_ids(seed, 0, n) for seed, n in segments])


def put(cache, pool, *segments):
    ids = tokens(*segments)
    pool.reserve(len(ids))
    return cache.insert(ids, 0, pool.take_reserved(len(ids)))[0]


def found(cache, *segments):
    ids = tokens(*segments)
    return cache.match(ids, len(ids)).num_tokens


def touch(cache, *segments):
    ids = tokens(*segments)
    return cache.touch(cache.match(ids, len(ids)))


def test_evict_takes_the_least_recently_used_leaf_whole(cache, pool):
    """Asked for one token it frees a leaf of ten: the one touched longest ago."""
    for seed in (1, 2, 3):
        put(cache, pool, (seed, 10))
    touch(cache, (1, 10))
    assert cache.evict(1) == 10
    assert [found(cache, (seed, 10)) for seed in (1, 2, 3)] == [10, 0, 10]
    assert cache.evict(11) == 20
    assert cache.evict(1) == 0


def test_evict_after_a_mere_match_goes_by_the_last_touch(cache, pool):
    """Looking does not keep anything warm."""
    put(cache, pool, (1, 10))
    put(cache, pool, (2, 10))
    assert found(cache, (1, 10)) == 10
    cache.evict(1)
    assert found(cache, (1, 10)) == 0


def test_evict_takes_children_before_their_parent(cache, pool):
    """A shared stem outlives its branches, then goes before what was used later."""
    put(cache, pool, (1, 10), (2, 5))
    put(cache, pool, (1, 10), (3, 5))
    put(cache, pool, (4, 7))
    assert cache.evict(1) == 5
    assert found(cache, (1, 10), (2, 5)) == 10
    assert cache.evict(6) == 15
    assert found(cache, (1, 10)) == 0
    assert found(cache, (4, 7)) == 7


def test_evict_after_a_partial_touch_takes_the_part_not_used(cache, pool):
    """A touch cuts the leaf where the match ends; the rest is refreshed too but goes first."""
    put(cache, pool, (1, 10))
    put(cache, pool, (2, 10))
    touch(cache, (1, 4))
    assert cache.evict(1) == 10
    assert found(cache, (2, 10)) == 0
    assert cache.evict(1) == 6
    assert found(cache, (1, 10)) == 4


def test_evict_after_insert_of_known_tokens_keeps_them_longer(cache, pool):
    """Inserting what is there already counts as a use."""
    put(cache, pool, (1, 10))
    put(cache, pool, (2, 10))
    put(cache, pool, (1, 10))
    cache.evict(1)
    assert (found(cache, (1, 10)), found(cache, (2, 10))) == (10, 0)


def test_evict_with_a_locked_descendant_spares_the_whole_path(cache, pool):
    """A lock holds its ancestors; once undone everything goes."""
    deep = put(cache, pool, (1, 10), (2, 5))
    put(cache, pool, (1, 10), (3, 5))
    cache.lock(deep)
    assert cache.evict(100) == 5
    assert found(cache, (1, 10), (2, 5)) == 15
    cache.unlock(deep)
    assert cache.evict(100) == 15
    assert pool.num_free_pages == 100


def test_lock_survives_a_cut_of_its_node(cache, pool):
    """Both halves of a locked node are locked, and one unlock lets go of both."""
    node = put(cache, pool, (1, 10))
    cache.lock(node)
    touch(cache, (1, 4))
    assert (cache.evictable_tokens, cache.protected_tokens) == (0, 10)
    cache.unlock(node)
    assert (cache.evictable_tokens, cache.protected_tokens) == (10, 0)


def test_unlock_more_often_than_locked_raises(cache, pool):
    """A lock too many given back is a defect."""
    node = put(cache, pool, (1, 10))
    cache.lock(node)
    cache.unlock(node)
    with pytest.raises(InvariantError, match="unlocked more often"):
        cache.unlock(node)


def test_match_from_an_evicted_node_starts_at_what_is_left(cache, pool):
    """A remembered node may be gone; the search goes on from its nearest living ancestor."""
    put(cache, pool, (1, 10))
    deep = put(cache, pool, (1, 10), (2, 5))
    cache.evict(1)
    ids = tokens((1, 10), (2, 5))
    assert cache.match(ids, len(ids), deep).num_tokens == 10
    put(cache, pool, (1, 10), (2, 5))
    assert cache.match(ids, len(ids), deep).num_tokens == 15


def test_no_cache_insert_raises():
    """Nobody should give pages to a cache that keeps none."""
    with pytest.raises(InvariantError, match="keeps nothing"):
        NoPrefixCache().insert(tokens((1, 3)), 0, PageIds(1, 1).empty)
