"""Which pages requests hold as they grow, are cached and finish."""

from functools import partial

import numpy as np
import pytest

from sim.core.errors import InvariantError
from sim.core.tokens import SegmentPrompt, stream_token_ids
from sim.engine.page_pool import PageCounts, PageIds
from sim.engine.request import OutputTokens
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.tree.prefix_cache import NoPrefixCache
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.request import RequestKV

_POOL_PAGES = 50


@pytest.fixture(params=[(PageCounts, 1), (PageIds, 1), (PageCounts, 4), (PageIds, 4)])
def kv(request):
    make_pool, page_size = request.param
    pool = make_pool(_POOL_PAGES, page_size)
    return KVCacheManager(pool, RadixCache(pool))


def request_kv(kv, *segments, output_seed=99):
    outputs = OutputTokens(
        partial(stream_token_ids, output_seed, 0), partial(stream_token_ids, output_seed)
    )
    return RequestKV(SegmentPrompt(segments), outputs, kv.pool.empty)


def prefill(kv, one, prompt_len):
    """Match, lock, compute and cache a whole prompt; returns what was found."""
    found = kv.find_prefix(one, prompt_len, prompt_len - 1)
    kv.lock_prefix(one)
    kv.extend([(one, found, prompt_len - found)])
    kv.checkpoint(one, prompt_len, prompt_len=prompt_len, seq_len=prompt_len)
    return found


def decode(kv, one, seq_len, num_steps):
    """Decode steps of a single request, which begins a page when the last one is full."""
    for length in range(seq_len, seq_len + num_steps):
        kv.decode(1, int(length % kv.page_size == 0))


def finish(kv, one, *, prompt_len, seq_len):
    kv.checkpoint(one, seq_len, prompt_len=prompt_len, seq_len=seq_len)
    kv.release(one, seq_len)


def test_prefill_new_prompt_takes_whole_pages_and_caches_all_but_the_last(kv):
    """The partial page stays with the request; the others belong to the tree, locked."""
    one = request_kv(kv, (1, 10))
    assert prefill(kv, one, 10) == 0
    cached = 10 // kv.page_size * kv.page_size
    assert one.protected_len == kv.cache.protected_tokens == cached
    assert len(one.pages) == -(-10 // kv.page_size) - cached // kv.page_size
    assert kv.free_tokens == kv.pool_tokens - -(-10 // kv.page_size) * kv.page_size
    kv.release(one, 10)
    assert (kv.cache.protected_tokens, kv.cache.evictable_tokens) == (0, cached)
    assert kv.free_tokens == kv.pool_tokens - cached
    assert kv.available_tokens == kv.pool_tokens


def test_prefill_same_prompt_again_reuses_all_but_the_last_token(kv):
    """The match stops short of the last token, whose logits are wanted, at a page boundary."""
    for expected in (0, 11 // kv.page_size * kv.page_size):
        one = request_kv(kv, (1, 12))
        assert prefill(kv, one, 12) == expected
        kv.release(one, 12)


def test_checkpoint_of_two_alike_frees_the_duplicates(kv):
    """Two requests of one batch computed the same prompt: one copy is left."""
    prompt_len = 12
    pair = [request_kv(kv, (1, prompt_len)) for _ in range(2)]
    for one in pair:
        assert kv.find_prefix(one, prompt_len, prompt_len - 1) == 0
        kv.lock_prefix(one)
    kv.extend([(one, 0, prompt_len) for one in pair])
    assert kv.free_tokens == kv.pool_tokens - 2 * prompt_len
    for one in pair:
        kv.checkpoint(one, prompt_len, prompt_len=prompt_len, seq_len=prompt_len)
    assert kv.free_tokens == kv.pool_tokens - prompt_len
    assert pair[0].locked is pair[1].locked
    for one in pair:
        kv.release(one, prompt_len)
    assert kv.cache.evictable_tokens == prompt_len


def test_finish_cuts_the_leaf_at_the_prompts_end(kv):
    """An output can be evicted and leave its prompt behind."""
    one = request_kv(kv, (1, 10))
    prefill(kv, one, 10)
    decode(kv, one, 10, 9)
    finish(kv, one, prompt_len=10, seq_len=19)
    cached = 19 // kv.page_size * kv.page_size
    prompt = 10 // kv.page_size * kv.page_size
    assert kv.cache.evictable_tokens == cached
    assert kv.free_tokens == kv.pool_tokens - cached
    assert kv.cache.evict(1) == cached - prompt
    assert kv.find_prefix(request_kv(kv, (1, 10), (99, 9)), 19, 19) == prompt


def test_prefill_after_a_retraction_cuts_the_leaf_at_the_prompts_end_too(kv):
    """Prompt and outputs are computed in one go, yet the outputs can be evicted alone."""
    one = request_kv(kv, (1, 12))
    kv.lock_prefix(one)
    kv.extend([(one, 0, 20)])
    kv.checkpoint(one, 20, prompt_len=12, seq_len=20)
    kv.release(one, 20)
    assert kv.cache.evict(1) == 8
    assert kv.cache.evict(1) == 12


def test_finish_of_a_conversation_lets_the_next_turn_hit_the_answer(kv):
    """A prompt that quotes prompt and answer finds both."""
    one = request_kv(kv, (1, 10))
    prefill(kv, one, 10)
    decode(kv, one, 10, 10)
    finish(kv, one, prompt_len=10, seq_len=20)
    assert prefill(kv, request_kv(kv, (1, 10), (99, 10), (2, 5)), 25) == 20


def test_decode_reserves_pages_and_takes_them_in_the_end(kv):
    """Free pages fall with each page begun; the span catches up when the request leaves."""
    one = request_kv(kv, (1, 4))
    prefill(kv, one, 4)
    for num_steps in range(1, 20):
        decode(kv, one, 4 + num_steps - 1, 1)
        assert kv.free_tokens == kv.pool_tokens - kv.ceil_page(4 + num_steps)
    assert len(one.pages) == 0
    kv.release(one, 4 + 19)
    assert kv.free_tokens == kv.pool_tokens - 4


def test_release_before_anything_was_cached_frees_everything(kv):
    """A request may leave in the middle of its prompt."""
    one = request_kv(kv, (1, 30))
    kv.lock_prefix(one)
    kv.extend([(one, 0, 13)])
    kv.release(one, 13)
    assert kv.free_tokens == kv.pool_tokens
    with pytest.raises(InvariantError, match="not locked"):
        kv.release(one, 0)


def test_checkpoint_chunk_by_chunk_ends_as_in_one_piece(kv):
    """A prompt prefilled in chunks leaves the same tokens in the cache."""
    one, start = request_kv(kv, (1, 30)), 0
    kv.lock_prefix(one)
    for end in (8, 20, 30):
        kv.extend([(one, start, end - start)])
        kv.checkpoint(one, end, prompt_len=30, seq_len=end)
        start = end
    cached = 30 // kv.page_size * kv.page_size
    assert one.protected_len == cached
    kv.release(one, 30)
    assert kv.free_tokens == kv.pool_tokens - cached
    assert kv.find_prefix(request_kv(kv, (1, 30)), 30, 30) == cached


def test_extend_beyond_the_pool_raises(kv):
    """Admission has to see to it that a batch fits."""
    one = request_kv(kv, (1, 1000))
    kv.lock_prefix(one)
    with pytest.raises(InvariantError, match="reserved"):
        kv.extend([(one, 0, kv.pool_tokens + 1)])


def fill_with_leaves(kv):
    """Cache prompts of four tokens until less than 20 tokens are free; returns how many are."""
    for i in range(kv.pool_tokens // 4 - 4):
        one = request_kv(kv, (100 + i, 4))
        prefill(kv, one, 4)
        kv.release(one, 4)
    return kv.free_tokens


def test_extend_evicts_what_it_needs_and_a_page_a_row_when_paged(kv):
    """Rule 12: exactly the tokens at page size 1, one page more a row otherwise."""
    free = fill_with_leaves(kv)
    evictable = kv.cache.evictable_tokens
    one = request_kv(kv, (1, 20))
    kv.lock_prefix(one)
    kv.extend([(one, 0, 20)])
    asked = 20 - free + (kv.page_size if kv.page_size > 1 else 0)
    assert kv.cache.evictable_tokens == evictable - -(-asked // 4) * 4


def test_can_decode_evicts_for_new_pages_only(kv):
    """Rule 11's check: nothing is evicted while the new pages fit."""
    num_free_pages = fill_with_leaves(kv) // kv.page_size
    evictable = kv.cache.evictable_tokens
    assert kv.can_decode(num_free_pages)
    assert kv.cache.evictable_tokens == evictable
    assert kv.can_decode(num_free_pages + 1)
    assert kv.cache.evictable_tokens == evictable - 4
    assert not kv.can_decode(_POOL_PAGES + 1)
    assert kv.free_tokens == kv.pool_tokens


def test_decode_evicts_for_a_page_a_row_whatever_is_needed(kv):
    """Rule 12's target of a decode step."""
    num_free_pages = fill_with_leaves(kv) // kv.page_size
    evictable = kv.cache.evictable_tokens
    kv.decode(num_free_pages, 0)
    assert kv.cache.evictable_tokens == evictable
    kv.decode(num_free_pages + 1, 0)
    assert kv.cache.evictable_tokens == evictable - 4


def test_no_cache_release_gives_back_every_page():
    """Without a prefix cache a request holds its own pages from its first token."""
    pool = PageIds(_POOL_PAGES, 4)
    kv = KVCacheManager(pool, NoPrefixCache())
    one = request_kv(kv, (1, 10))
    assert prefill(kv, one, 10) == 0
    assert len(one.pages) == 3
    decode(kv, one, 10, 5)
    finish(kv, one, prompt_len=10, seq_len=15)
    assert pool.num_free_pages == _POOL_PAGES


def test_token_ids_join_prompt_and_output():
    """Up to the prompt's end nothing is asked of the output."""
    outputs = OutputTokens(np.arange, np.arange)
    one = RequestKV(SegmentPrompt(((1, 3),)), outputs, PageCounts(0, 1).empty)
    assert one.token_ids(2)[:].tolist() == stream_token_ids(1, 0, 2).tolist()
    assert one.token_ids(5)[:].tolist() == [*stream_token_ids(1, 0, 3).tolist(), 0, 1]
