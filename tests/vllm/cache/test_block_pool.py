"""Which block is allocated next, and which are found (rules 8 to 11)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.errors import InvariantError
from sim.vllm.cache.block_pool import BlockPool
from sim.vllm.request import NO_BLOCKS, block_ids


def add_hash(pool, block, content, full_at=0):
    pool.add_hashes(np.array([content], dtype=np.uint64), block_ids([block]), full_at, 0)


def find(pool, content):
    """The block that a request finds; None if there is none."""
    return pool.block_of_hash.get(content)


def found(pool, content):
    """The blocks found for `content`: each one is evicted, and then the next is looked up."""
    blocks = []
    while (block := find(pool, content)) is not None:
        blocks.append(block)
        while find(pool, content) == block:
            pool.get_new_blocks(1)
    return blocks


def test_blocks_never_used_are_taken_by_number():
    """And then in the order in which they were given back, the last one of each request first."""
    pool = BlockPool(6)
    assert pool.get_new_blocks(2) == [0, 1]
    assert pool.get_new_blocks(1) == [2]
    pool.free_in_order(NO_BLOCKS, [1])
    pool.free_in_order(NO_BLOCKS, [0, 2])
    assert pool.queued_blocks() == [3, 4, 5, 1, 2, 0]
    assert pool.get_new_blocks(5) == [3, 4, 5, 1, 2]
    assert pool.num_free_blocks == 1


def test_block_in_use_twice_is_free_when_both_are_done():
    """Only then does it get its place in the queue."""
    pool = BlockPool(3)
    blocks = pool.get_new_blocks(2)
    add_hash(pool, 0, 11)
    pool.touch(block_ids(blocks[:1]))
    pool.free_in_order(block_ids(blocks[:1]), blocks[1:])
    assert pool.queued_blocks() == [2, 1]
    pool.free_in_order(block_ids([0]), [])
    assert pool.queued_blocks() == [2, 1, 0]


def test_block_found_while_free_leaves_the_queue_from_the_middle():
    """The others keep their order."""
    pool = BlockPool(5)
    blocks = pool.get_new_blocks(5)
    for block in blocks:
        add_hash(pool, block, 11 + block)
    pool.free_in_order(block_ids(blocks), [])
    assert pool.queued_blocks() == [4, 3, 2, 1, 0]
    assert (find(pool, 13), pool.num_free(block_ids([2]))) == (2, 1)
    pool.touch(block_ids([2]))
    assert pool.num_free(block_ids([2])) == 0
    assert pool.queued_blocks() == [4, 3, 1, 0]
    pool.free_in_order(block_ids([2]), [])
    assert pool.queued_blocks() == [4, 3, 1, 0, 2]
    assert pool.get_new_blocks(5) == [4, 3, 1, 0, 2]


def test_free_block_is_found_until_it_is_taken():
    """Taking it for anything else is its eviction, whether or not that fills it."""
    pool = BlockPool(2)
    add_hash(pool, *pool.get_new_blocks(1), 11)
    pool.free_in_order(block_ids([0]), [])
    assert pool.get_new_blocks(1) == [1]
    assert find(pool, 11) == 0
    assert pool.get_new_blocks(1) == [0]
    assert find(pool, 11) is None
    assert pool.num_hashed_blocks == 0


def test_equal_blocks_are_all_kept_and_the_one_full_first_is_found():
    """In whichever order they were hashed; one after the other, as those before are evicted."""
    pool = BlockPool(4)
    pool.get_new_blocks(3)
    for block, full_at in ((0, 7), (1, 5), (2, 9)):
        add_hash(pool, block, 11, full_at)
    assert pool.num_hashed_blocks == 3
    for block in (1, 0, 2):
        pool.free_in_order(block_ids([block]), [])
    assert found(pool, 11) == [1, 0, 2]


def test_pool_refuses_what_it_does_not_have():
    """A defect of whoever asks."""
    with pytest.raises(InvariantError, match="3 blocks taken, but only 2 are free"):
        BlockPool(2).get_new_blocks(3)


@given(st.lists(st.tuples(st.sampled_from("tufc"), st.integers(0, 99)), max_size=60))
def test_pool_does_what_plain_lists_would(moves):
    """Taking, using, freeing and naming in any order, beside a queue kept by hand."""
    pool, queue, users, names = BlockPool(5), list(range(5)), dict.fromkeys(range(5), 0), {}
    for number, (kind, drawn) in enumerate(moves):
        block = drawn % 5
        if kind == "t" and queue:
            taken = queue.pop(0)
            names.pop(taken, None)
            users[taken] = 1
            assert pool.get_new_blocks(1) == [taken]
        elif kind == "u" and block in names:
            users[block] += 1
            queue = [free for free in queue if free != block]
            pool.touch(block_ids([block]))
        elif kind == "f" and users[block]:
            users[block] -= 1
            queue += [block] if not users[block] else []
            hashed, plain = (block_ids([block]), []) if block in names else (NO_BLOCKS, [block])
            pool.free_in_order(hashed, plain)
        elif kind == "c" and users[block] and block not in names:
            names[block] = 1 + drawn % 3
            add_hash(pool, block, names[block], number)
        assert pool.queued_blocks() == queue
        for content in (1, 2, 3):
            oldest = next((b for b, held in names.items() if held == content), None)
            assert find(pool, content) == oldest
