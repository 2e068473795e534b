"""Every kind of broken block is found (INV-15)."""

import pytest

from sim.core.errors import InvariantError
from sim.core.tokens import SegmentPrompt
from sim.engine.request import OutputTokens
from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.check import check_blocks
from sim.vllm.request import NO_BLOCKS, Chunk, RequestBlocks


def two_requests():
    """A pool of eight blocks of four tokens; b shares a's first two, and has decoded one token."""
    kv = KVCacheCoordinator(8, 4)
    requests = {}
    for rid, segments in (("a", [(1, 10)]), ("b", [(1, 8), (2, 4)])):
        request = RequestBlocks(SegmentPrompt(tuple(segments)), OutputTokens(None, None))
        num_tokens = sum(num for _, num in segments)
        hit = kv.find_longest_cache_hit(request, num_tokens)
        kv.admit(request, hit, Chunk(hit.num_tokens, num_tokens, num_tokens))
        kv.cache_blocks(request, num_tokens, num_tokens)
        requests[rid] = (request, num_tokens)
    kv.reserve_pages(1)
    requests["b"] = (requests["b"][0], 13)
    return kv, requests


def test_sound_blocks_pass():
    """Shared, owned, reserved and free ones."""
    kv, requests = two_requests()
    assert (kv.num_free_pages, kv.num_reserved_blocks) == (3, 1)
    check_blocks(kv, requests, in_lockstep=True)


def lose_a_free_block(kv, requests):
    kv.pool._free.take(1)


def use_a_free_block(kv, requests):
    requests["b"][0].tables[0].blocks[-1] = kv.pool.queued_blocks()[0]


def forget_a_user(kv, requests):
    kv.pool.extra_users[0] = 0


def forget_a_request(kv, requests):
    del requests["b"]


def reserve_too_many(kv, requests):
    kv.reserve_pages(1)


def hold_too_many(kv, requests):
    requests["a"] = (requests["a"][0], 4)


def give_a_wrong_hash(kv, requests):
    kv.pool.hash_of[0] += 1


def hash_one_block_more(kv, requests):
    kv.pool.hash_of[2] = 7


def free_a_block_twice(kv, requests):
    kv.pool._free.append(kv.pool.queued_blocks()[:1], NO_BLOCKS)


def forget_a_free_block(kv, requests):
    kv.pool._free._num_free -= 1


def call_a_used_block_free(kv, requests):
    kv.pool._free.group_of[0] = 1


def hash_a_reserved_block(kv, requests):
    kv.pool.hash_of[kv._reserved[0]] = 7
    kv.pool.block_of_hash[7] = kv._reserved[0]


def forget_a_hash(kv, requests):
    del kv.pool.block_of_hash[kv.pool.hash_at(1)]


BREACHES = [
    (lose_a_free_block, r"2 free \+ 4 used \+ 1 reserved blocks are 7, not 8"),
    (use_a_free_block, "a free block is in use"),
    (forget_a_user, "the count of a block's users is wrong"),
    (forget_a_request, "requests lack 0 blocks, but 1 are reserved"),
    (reserve_too_many, "requests lack 1 blocks, but 2 are reserved"),
    (hold_too_many, "a has more blocks than it needs"),
    (give_a_wrong_hash, "a: a block has a wrong hash"),
    (hash_one_block_more, "a: a block has a hash too early"),
    (free_a_block_twice, "a block is free twice"),
    (forget_a_free_block, "the count of free blocks is wrong"),
    (call_a_used_block_free, "what is known of a free block is wrong"),
    (hash_a_reserved_block, "a reserved block has a hash"),
    (forget_a_hash, "the count of blocks with hashes is wrong"),
]


@pytest.mark.parametrize(("spoil", "message"), BREACHES, ids=[b.__name__ for b, _ in BREACHES])
def test_unsound_blocks_are_found(spoil, message):
    """Each breach by itself, with words that say what it is."""
    kv, requests = two_requests()
    spoil(kv, requests)
    with pytest.raises(InvariantError, match=message):
        check_blocks(kv, requests, in_lockstep=True)
