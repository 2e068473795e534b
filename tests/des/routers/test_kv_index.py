"""The index of cached blocks: events take effect when they arrive."""

from hypothesis import given
from hypothesis import strategies as st

from sim.des.routers.kv_aware import KvIndex, num_leading

keys = st.integers(0, 300)


@given(st.lists(keys, max_size=200, unique=True), st.sets(keys), st.integers(0, 200))
def test_num_leading_counts_up_to_the_first_key_that_is_missing(prompt, held, num_held):
    """In a set and in a dictionary, however long the prompt."""
    held |= set(prompt[:num_held])
    expected = 0
    while expected < len(prompt) and prompt[expected] in held:
        expected += 1
    assert num_leading(prompt, held) == expected
    assert num_leading(prompt, dict.fromkeys(held, 1)) == expected


def test_index_events_count_once_they_have_arrived():
    """Stored at 5 and removed at 6, each known 10 later; another replica's blocks are its own."""
    index, now = KvIndex(10), [5]
    one, other = (index.add_cache(replica, lambda: now[0]) for replica in (0, 1))
    one.stored([1, 2, 3])
    now[0] = 6
    one.removed([3])
    other.stored([1])
    for at, cached in ((14, (0, 0)), (15, (3, 0)), (16, (2, 1)), (99, (2, 1))):
        index.advance(at)
        assert tuple(index.num_cached([1, 2, 3, 4], replica) for replica in (0, 1)) == cached
    assert index.held(0) == [{1, 2}]


def test_index_replica_with_ranks_counts_as_its_best_rank():
    """Blocks on different ranks do not add up: a request runs on one of them."""
    index = KvIndex(0)
    first, second = (index.add_cache(0, lambda: 0) for _ in range(2))
    first.stored([1, 2])
    second.stored([3])
    index.advance(0)
    assert index.num_cached([1, 2, 3], 0) == 2
    assert index.num_cached([1, 2, 3], 7) == 0


def test_index_a_block_that_is_missing_ends_the_prefix():
    """The pool of family vllm may lose a block before the one that follows it."""
    index = KvIndex(0)
    index.add_cache(0, lambda: 0).stored([1, 3])
    index.advance(0)
    assert index.num_cached([1, 2, 3], 0) == 1
