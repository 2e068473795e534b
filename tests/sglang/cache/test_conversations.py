"""A turn's prompt is searched from where the turn before it ended, and finds what it would find."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from sim.core.tokens import ArrayPrompt, SegmentPrompt, stream_token_ids
from sim.engine.page_pool import PageCounts
from sim.engine.request import OutputTokens
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.cache.tree.radix_tree import Conversations, num_shared_tokens

_POOL_TOKENS = 64


def new_kv(page_size, *, compares_pairs=False):
    pool = PageCounts(_POOL_TOKENS // page_size, page_size)
    return KVCacheManager(pool, RadixCache(pool), compares_pairs=compares_pairs)


def new_turn(kv, conversation, segments):
    """Its output is token stream 99, which later prompts may quote."""
    ids = partial(stream_token_ids, 99, 0)
    outputs = OutputTokens(ids, lambda start, stop: ids(stop)[start:])
    return kv.new_request(SegmentPrompt(segments), outputs, conversation)


def serve(kv, one, prompt_len, num_outputs):
    """Compute a prompt and its answer; False: the pool is too small."""
    found = kv.find_prefix(one, prompt_len, prompt_len - 1)
    kv.lock_prefix(one)
    seq_len = prompt_len + num_outputs
    if not kv.evict_until_free(seq_len + 2 * kv.page_size - found):
        kv.release(one, found)
        return False
    kv.extend([(one, found, prompt_len - found)])
    for length in range(prompt_len, seq_len):
        kv.decode(1, int(length % kv.page_size == 0))
    kv.checkpoint(one, seq_len, prompt_len=prompt_len, seq_len=seq_len)
    kv.release(one, seq_len)
    return True


# A message continues the conversation; none begins it again with other text, or shortens it.
messages = st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 12), st.booleans())


@given(st.lists(messages, max_size=25), st.sampled_from([1, 4]), st.booleans())
def test_every_turn_finds_what_a_search_from_the_root_finds(turns, page_size, compares_pairs):
    """Whether it continues the turn before or not, and whatever was evicted meanwhile."""
    kv = new_kv(page_size, compares_pairs=compares_pairs)
    said = {"a": ((1, 7),), "b": ((1, 7),)}
    for conversation, seed, num_outputs, continues in turns:
        if not continues:
            said[conversation] = said[conversation][:1]
        said[conversation] += ((2 + seed, 1 + seed * 4),)
        one = new_turn(kv, conversation, said[conversation])
        prompt_len = sum(num_tokens for _, num_tokens in said[conversation])
        other = new_turn(kv, "", said[conversation])
        here = kv.find_prefix(one, prompt_len, prompt_len - 1)
        assert here == kv.find_prefix(other, prompt_len, prompt_len - 1)
        assert one.found is other.found
        one.found = None
        if serve(kv, one, prompt_len, num_outputs):
            said[conversation] += ((99, num_outputs),)
        else:
            said[conversation] = said[conversation][:1]


def test_the_search_begins_at_the_end_of_the_prompt_before():
    """Of 20 turns: so it compares the answer and the new message alone."""
    kv = new_kv(1)
    segments, ends = (), []
    for seed in range(20):
        segments += ((seed, 2),)
        one = new_turn(kv, "one", segments)
        ends.append(None if one.turn.start is None else one.turn.start.end)
        assert serve(kv, one, 3 * seed + 2, 1)
        segments += ((99, 1),)
    assert ends == [None, *range(2, 59, 3)]


def test_a_conversation_is_one_by_its_tokens_not_by_its_name():
    kv = new_kv(1)
    assert serve(kv, new_turn(kv, "other", ((1, 4),)), 4, 1)
    assert serve(kv, new_turn(kv, "one", ((1, 4), (2, 4))), 8, 2)
    assert new_turn(kv, "one", ((1, 4), (3, 9))).turn.start.end == 4
    assert new_turn(kv, "one", ((3, 9),)).turn.start is kv.cache.root
    assert new_turn(kv, "", ((1, 4),)).turn is None


def test_a_pair_whose_second_token_differs_is_not_shared():
    """The four tokens that are shared are three pairs; the node at their end has a fourth."""
    kv = new_kv(1, compares_pairs=True)
    assert serve(kv, new_turn(kv, "other", ((1, 4), (2, 1))), 5, 1)
    assert serve(kv, new_turn(kv, "one", ((1, 4), (2, 4))), 8, 2)
    assert new_turn(kv, "one", ((1, 4), (2, 4))).turn.start.end == 7
    assert new_turn(kv, "one", ((1, 4), (3, 9))).turn.start is kv.cache.root


def test_conversations_whose_kv_was_evicted_are_let_go():
    kv, kept = new_kv(1), Conversations()
    for number in range(3000):
        prompt = SegmentPrompt(((number, 9),))
        one = new_turn(kv, "", prompt.segments)
        assert serve(kv, one, 9, 1)
        turn = kept.begin(str(number), prompt, 0)
        assert turn is not None
        kept.end(turn, one.found)
    assert len(kept) <= 1024
    assert kept.begin("2999", SegmentPrompt(((2999, 9), (1, 1))), 0).start is not None
    assert kept.begin("2999", ArrayPrompt(stream_token_ids(2999, 0, 9)), 0) is None


def test_prompts_share_their_first_equal_segments():
    prompt = SegmentPrompt(((1, 4), (2, 4), (3, 1)))
    assert num_shared_tokens(prompt, SegmentPrompt(((1, 4), (2, 4)))) == 8
    assert num_shared_tokens(prompt, SegmentPrompt(((1, 4), (2, 3), (3, 1)))) == 4
    assert num_shared_tokens(prompt, SegmentPrompt(((2, 4),))) == 0
    assert num_shared_tokens(prompt, SegmentPrompt(())) == 0
    assert num_shared_tokens(SegmentPrompt(((1, 4),)), prompt) == 4
