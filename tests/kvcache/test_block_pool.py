"""Which block is taken next, and which are found (rules 8 to 11)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.errors import InvariantError
from sim.kvcache.block_pool import BlockPool


def test_blocks_never_used_are_taken_by_number():
    """And then in the order in which they were given back."""
    pool = BlockPool(6)
    assert pool.take(2) == [0, 1]
    assert pool.take(1) == [2]
    pool.give_back([1])
    pool.give_back([2, 0])
    assert pool.free_blocks() == [3, 4, 5, 1, 2, 0]
    assert pool.take(5) == [3, 4, 5, 1, 2]
    assert pool.num_free_blocks == 1


def test_block_in_use_twice_is_free_when_both_are_done():
    """Only then does it get its place in the queue."""
    pool = BlockPool(3)
    blocks = pool.take(2)
    pool.use(blocks[:1])
    pool.give_back(reversed(blocks))
    assert pool.free_blocks() == [2, 1]
    pool.give_back([0])
    assert pool.free_blocks() == [2, 1, 0]


def test_block_found_while_free_leaves_the_queue_from_the_middle():
    """The others keep their order."""
    pool = BlockPool(5)
    blocks = pool.take(5)
    pool.cache(blocks, [11, 12, 13, 14, 15])
    pool.give_back(blocks)
    found = pool.find([13])
    assert pool.num_unused(found) == 1
    pool.use(found)
    assert pool.num_unused(found) == 0
    assert pool.free_blocks() == [0, 1, 3, 4]
    pool.give_back(found)
    assert pool.free_blocks() == [0, 1, 3, 4, 2]


def test_free_block_is_found_until_it_is_taken():
    """Taking it for anything else is its eviction, whether or not that fills it."""
    pool = BlockPool(2)
    pool.cache(pool.take(1), [11])
    pool.give_back([0])
    assert pool.take(1) == [1]
    assert pool.find([11]) == [0]
    assert pool.take(1) == [0]
    assert pool.find([11]) == []
    assert pool.num_cached_blocks == 0


def test_find_stops_at_the_first_that_is_missing():
    """What comes after a gap is of no use."""
    pool = BlockPool(4)
    pool.cache(pool.take(3), [11, 12, 14])
    assert pool.find([11, 12, 13, 14]) == [0, 1]
    assert pool.find([13, 11]) == []


def test_equal_blocks_are_all_kept_and_the_oldest_is_found():
    """One after the other, as those before are evicted."""
    pool = BlockPool(4)
    blocks = pool.take(3)
    pool.cache([blocks[1]], [11])
    pool.cache([blocks[0]], [11])
    pool.cache([blocks[2]], [11])
    assert pool.num_cached_blocks == 3
    pool.give_back([1, 0, 2])
    found = []
    for _ in range(4):
        found.append(pool.find([11]))
        pool.take(1)
    # The fourth block was never used: it goes first.
    assert found == [[1], [1], [0], [2]]
    assert pool.find([11]) == []


def test_pool_refuses_what_it_does_not_have():
    """Both are defects of whoever asks."""
    pool = BlockPool(2)
    with pytest.raises(InvariantError, match="3 blocks taken, 2 free"):
        pool.take(3)
    pool.give_back(pool.take(1))
    with pytest.raises(InvariantError, match="block 0 was given back twice"):
        pool.give_back([0])


@given(st.lists(st.tuples(st.sampled_from("tufc"), st.integers(0, 99)), max_size=60))
def test_pool_does_what_plain_lists_would(moves):
    """Taking, using, freeing and caching in any order, beside a queue kept by hand."""
    pool, queue, users, names = BlockPool(5), list(range(5)), dict.fromkeys(range(5), 0), {}
    for kind, number in moves:
        block = number % 5
        if kind == "t" and queue:
            taken = queue.pop(0)
            names.pop(taken, None)
            users[taken] = 1
            assert pool.take(1) == [taken]
        elif kind == "u" and block in names:
            users[block] += 1
            queue = [free for free in queue if free != block]
            pool.use([block])
        elif kind == "f" and users[block]:
            users[block] -= 1
            queue += [block] if not users[block] else []
            pool.give_back([block])
        elif kind == "c" and users[block] and block not in names:
            names[block] = 1 + number % 3
            pool.cache([block], [names[block]])
        assert pool.free_blocks() == queue
        for name in (1, 2, 3):
            oldest = next((b for b, held in names.items() if held == name), None)
            assert pool.find([name]) == ([] if oldest is None else [oldest])
