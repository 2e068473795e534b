"""Blocks of whole requests: found, taken, filled, given back (rules 7 to 11)."""

import weakref
from functools import partial

import numpy as np
import pytest

from sim.core.tokens import SegmentPrompt, stream_token_ids
from sim.engine.request import OutputTokens
from sim.vllm.cache.kv_cache_coordinator import FULL_ATTENTION, KVCacheCoordinator
from sim.vllm.cache.single_type_manager import CacheRules
from sim.vllm.check import check_blocks
from sim.vllm.request import Chunk, RequestBlocks

_ANSWER = 99


class Desk:
    """A pool of ten blocks of 16 tokens, and requests at it."""

    def __init__(self, num_blocks=10, block_size=16, *, caches=True, first=True):
        """`first`: blocks without cached contents are taken again first."""
        rules = CacheRules(enable_caching=caches, reuses_uncached_first=first)
        self.kv = KVCacheCoordinator(num_blocks, block_size, FULL_ATTENTION, rules)
        self.pool = self.kv.pool
        self._held = {}

    def admit(self, *segments, num_tokens=None):
        """Admit a prompt of `(seed, num_tokens)` pieces, or only some tokens after the found ones.

        Returns:
            The request, or None if it does not fit.
        """
        prompt = SegmentPrompt(segments)
        outputs = OutputTokens(
            partial(stream_token_ids, _ANSWER, 0), partial(stream_token_ids, _ANSWER)
        )
        request = RequestBlocks(prompt, outputs)
        hit = self.kv.find_longest_cache_hit(request, len(prompt))
        end = len(prompt) if num_tokens is None else hit.num_tokens + num_tokens
        chunk = Chunk(hit.num_tokens, end, len(prompt))
        if not self.kv.can_admit(hit, chunk, 0, 0):
            return None
        self.kv.admit(request, hit, chunk)
        self.kv.cache_blocks(request, end, len(prompt))
        self._note(request, end)
        return request

    def decode(self, request, num_tokens):
        """Decode until the request has KV for `num_tokens` tokens."""
        before = self._held[id(request)][1]
        for length in range(before + 1, num_tokens + 1):
            self.kv.reserve_pages(int((length - 1) % self.kv.page_size == 0))
            self.kv.cache_decoded(request, length)
        self._note(request, num_tokens)

    def release(self, *requests):
        for request in requests:
            self.kv.free(request, self._held.pop(id(request))[1])
        self.check()

    def found(self, *segments):
        request = RequestBlocks(SegmentPrompt(segments), OutputTokens(None, None))
        return (
            self.kv.find_longest_cache_hit(request, sum(n for _, n in segments)).blocks[0].tolist()
        )

    def _note(self, request, num_tokens):
        self._held[id(request)] = (request, num_tokens)
        self.check()

    def check(self):
        check_blocks(
            self.kv, {str(name): held for name, held in self._held.items()}, in_lockstep=True
        )


def test_blocks_are_hashed_only_where_prompts_may_begin_alike():
    """The second prompt shares nothing with the first; the third begins with the first's block."""
    desk = Desk(30)
    desk.admit((1, 64))
    desk.admit((2, 64))
    assert desk.pool.num_hashed_blocks == 0
    assert len(desk.found((1, 16), (3, 48))) == 1
    assert desk.pool.num_hashed_blocks == 4


def test_many_prompts_that_begin_in_different_ways_are_all_found():
    """Also when what is known of how cached prompts begin has just been tidied up."""
    desk = Desk(400)
    for seed in range(300):
        desk.release(desk.admit((seed, 16), (1000 + seed, 1)))
        assert len(desk.found((seed, 16), (2000 + seed, 1))) == 1


def test_full_blocks_are_cached_when_they_are_taken():
    """Not when they are computed; the incomplete one is not."""
    desk = Desk()
    request = desk.admit((1, 55))
    assert request.tables[0].blocks_from(0) == [0, 1, 2, 3]
    assert request.tables[0].num_cached == 3
    assert desk.found((1, 48), (2, 7)) == [0, 1, 2]


def test_prefix_in_use_is_shared():
    """By two requests, with a block of its own for each one's rest."""
    desk = Desk()
    desk.admit((1, 48), (2, 7))
    second = desk.admit((1, 48), (3, 5))
    assert second.tables[0].blocks_from(0) == [0, 1, 2, 4]
    assert desk.pool.extra_users[:10].tolist() == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert desk.pool.num_free_blocks == 5


def test_blocks_are_given_back_from_the_tail():
    """Shared ones when the last user is done; a hit takes them out of the queue again."""
    desk = Desk(first=False)
    first, second = desk.admit((1, 48), (2, 7)), desk.admit((1, 48), (3, 5))
    desk.release(first, second)
    assert desk.pool.queued_blocks() == [5, 6, 7, 8, 9, 3, 4, 2, 1, 0]
    third = desk.admit((1, 48), (4, 6))
    assert third.tables[0].blocks_from(0) == [0, 1, 2, 5]
    assert desk.pool.queued_blocks() == [6, 7, 8, 9, 3, 4]
    desk.release(third)
    assert desk.pool.queued_blocks() == [6, 7, 8, 9, 3, 4, 5, 2, 1, 0]
    everything = desk.admit((5, 160))
    assert everything.tables[0].blocks_from(0) == [6, 7, 8, 9, 3, 4, 5, 2, 1, 0]
    assert desk.found((1, 48), (2, 7)) == []


def test_blocks_without_cached_contents_go_to_the_front():
    """The last one freed is taken first, before those never used; full ones wait at the end."""
    desk = Desk()
    first, second = desk.admit((1, 48), (2, 7)), desk.admit((1, 48), (3, 5))
    desk.release(first)
    assert desk.pool.queued_blocks() == [3, 5, 6, 7, 8, 9]
    desk.release(second)
    assert desk.pool.queued_blocks() == [4, 3, 5, 6, 7, 8, 9, 2, 1, 0]
    assert desk.admit((5, 33)).tables[0].blocks_from(0) == [4, 3, 5]
    assert desk.found((1, 48), (2, 7)) == [0, 1, 2]


def test_hit_among_the_freed_takes_the_untouched_block_for_the_rest():
    """Six blocks and three are given back, one was never used: that one goes first."""
    desk = Desk(first=False)
    first, second = desk.admit((1, 87)), desk.admit((2, 48))
    desk.release(first, second)
    assert desk.pool.queued_blocks() == [9, 5, 4, 3, 2, 1, 0, 8, 7, 6]
    assert desk.admit((1, 32), (3, 3)).tables[0].blocks_from(0) == [0, 1, 9]
    assert desk.pool.num_free_blocks == 7


def test_own_hit_is_not_taken_for_the_rest():
    """Even if it is the next in the queue."""
    desk = Desk(2)
    desk.release(desk.admit((1, 16)), desk.admit((2, 16)))
    assert desk.pool.queued_blocks() == [0, 1]
    assert desk.admit((1, 16), (3, 10)).tables[0].blocks_from(0) == [0, 1]


def test_request_that_does_not_fit_touches_nothing():
    """Six blocks found, three of them free, and three more: five free ones are not enough."""
    desk = Desk()
    desk.admit((1, 48))
    longer = desk.admit((1, 96))
    desk.admit((2, 32))
    desk.release(longer)
    queue, users = desk.pool.queued_blocks(), desk.pool.extra_users.tolist()
    assert len(queue) == 5
    assert len(desk.found((1, 96), (3, 48))) == 6
    assert desk.admit((1, 96), (3, 48)) is None
    assert (desk.pool.queued_blocks(), desk.pool.extra_users.tolist()) == (queue, users)
    assert desk.admit((1, 96), (3, 32)) is not None


class _Refused:
    """A request of 64 tokens that was looked up and refused."""

    def __init__(self, desk):
        self._kv = desk.kv
        self.blocks = RequestBlocks(SegmentPrompt(((1, 64),)), OutputTokens(None, None))
        self.may_find_more = self._kv.may_find_more(self.blocks, self.look())

    def look(self):
        return self._kv.find_longest_cache_hit(self.blocks, 64)

    def num_found(self):
        return self.look().num_tokens // 16


def test_refused_request_loses_what_is_evicted():
    """Three blocks of another request's prompt are found; then rows that decode take two."""
    desk = Desk(4)
    desk.release(desk.admit((1, 64)))
    refused = _Refused(desk)
    assert (refused.may_find_more, refused.num_found()) == (False, 3)
    desk.kv.reserve_pages(3)
    assert refused.num_found() == 1


def test_refused_request_loses_blocks_that_have_other_tokens_now():
    """Layers of another group take two of the three blocks that were found, and fill them."""
    desk = Desk(4)
    desk.release(desk.admit((1, 64)))
    refused = _Refused(desk)
    found = refused.look().blocks[0]
    assert (refused.may_find_more, len(found)) == (False, 3)
    desk.kv.reserve_pages(3)
    taken = found[desk.pool.hash_of[found] == 0]
    hashes = np.arange(1, 1 + len(taken), dtype=np.uint64)
    desk.pool.add_hashes(hashes, taken, full_at=2, number=2)
    assert (len(taken), refused.num_found()) == (2, 1)


def test_refused_request_finds_what_is_computed_meanwhile():
    """By one with the same prompt, of which the first block was full before."""
    desk = Desk()
    running = desk.admit((1, 64), num_tokens=16)
    refused = _Refused(desk)
    assert (refused.may_find_more, refused.num_found()) == (True, 1)
    desk.kv.allocate_new_blocks(running, Chunk(16, 64, 64))
    desk.kv.cache_blocks(running, 64, 64)
    assert refused.num_found() == 3


def test_refused_request_finds_what_it_computed_before_it_was_preempted():
    """Nothing was found of it; then it had room for its prompt, and lost it to another one."""
    desk = Desk()
    refused = _Refused(desk)
    assert (refused.may_find_more, refused.num_found()) == (False, 0)
    chunk = Chunk(0, 64, 64)
    desk.kv.admit(refused.blocks, refused.look(), chunk)
    desk.kv.cache_blocks(refused.blocks, 64, 64)
    desk.kv.free(refused.blocks, 64)
    assert refused.num_found() == 3


def test_decode_caches_a_block_with_the_step_that_fills_it():
    """55 tokens of a prompt, then an answer up to 78: the fourth block is full at 64."""
    desk = Desk()
    request = desk.admit((1, 55))
    prompt_and_answer = ((1, 55), (_ANSWER, 23))
    desk.decode(request, 63)
    assert len(desk.found(*prompt_and_answer)) == 3
    desk.decode(request, 64)
    assert len(desk.found(*prompt_and_answer)) == 4
    desk.decode(request, 78)
    desk.release(request)
    assert len(desk.found(*prompt_and_answer)) == 4
    assert desk.pool.queued_blocks() == [4, 5, 6, 7, 8, 9, 3, 2, 1, 0]


def test_block_taken_again_forgets_what_it_held():
    """Though what it holds now does not fill it."""
    desk = Desk(1)
    desk.release(desk.admit((1, 16)))
    assert desk.found((1, 17)) == [0]
    desk.admit((2, 5))
    assert desk.found((1, 17)) == []


@pytest.mark.parametrize(("num_tokens", "num_found"), [(31, 1), (32, 1), (33, 2)])
def test_last_token_is_never_found(num_tokens, num_found):
    """It has to be computed, and with it all of its block."""
    desk = Desk()
    desk.admit((1, 48))
    assert len(desk.found((1, num_tokens))) == num_found


def test_same_prompt_of_whole_blocks_leaves_a_duplicate():
    """The last block is computed twice and kept twice; the older one is found."""
    desk = Desk()
    first, second = desk.admit((1, 32)), desk.admit((1, 32))
    assert (first.tables[0].blocks_from(0), second.tables[0].blocks_from(0)) == ([0, 1], [0, 2])
    assert desk.found((1, 33)) == [0, 1]
    desk.release(second, first)
    # 3 to 9 were never used; then 2, which was given back first, and 1.
    desk.admit((3, 7 * 16))
    assert desk.admit((4, 16)).tables[0].blocks_from(0) == [2]
    assert desk.found((1, 33)) == [0, 1]
    assert desk.admit((5, 16)).tables[0].blocks_from(0) == [1]
    assert desk.found((1, 33)) == [0]


def test_chunks_are_cached_one_by_one():
    """A prompt in progress has blocks, and names, for what it has begun."""
    desk = Desk()
    request = desk.admit((1, 100), num_tokens=40)
    assert (request.tables[0].num_blocks, request.tables[0].num_cached) == (3, 2)
    rest = Chunk(40, 100, 100)
    assert desk.kv.num_blocks_to_allocate(request, rest) == 4
    desk.kv.allocate_new_blocks(request, rest)
    desk.kv.cache_blocks(request, 100, 100)
    assert (request.tables[0].num_blocks, request.tables[0].num_cached) == (7, 6)


def test_caching_off_names_nothing():
    """Blocks come and go by their order alone."""
    desk = Desk(4, 4, caches=False)
    request = desk.admit((1, 12))
    desk.decode(request, 13)
    assert desk.found((1, 13)) == []
    assert desk.pool.num_hashed_blocks == 0
    assert desk.admit((1, 1)) is None
    desk.release(request)
    assert desk.pool.queued_blocks() == [3, 2, 1, 0]


def test_spans_name_the_blocks_of_a_request():
    """Those reserved for its decode steps too."""
    desk = Desk(4, 4)
    request = desk.admit((1, 6))
    desk.decode(request, 9)
    (span,) = desk.kv.spans(request, 9)
    assert np.array_equal(span.ids, [0, 1, 2])


class _Owner:
    """Stands for the scheduler's request."""

    def __init__(self, blocks):
        self.blocks = blocks

    def catch_up(self):
        pass


def test_ended_requests_are_not_kept():
    """Not even until Python's collector comes, which it rarely does: a run has millions."""
    desk, owners = Desk(), []
    for seed in range(50):
        request = desk.admit((seed, 55))
        owner = _Owner(request)
        request.catch_up = owner.catch_up
        owners.append(weakref.ref(owner))
        desk.release(request)
        del request, owner
    assert [owner() for owner in owners] == [None] * 50
