"""Token streams and prompts: reproducible, and shared exactly as far as they should be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.tokens import (
    ArrayPrompt,
    BlockPrompt,
    SegmentPrompt,
    stream_token_ids,
    stream_tokens_at,
)
from sim.vllm.request import num_alike

_MASK = (1 << 64) - 1

seeds = st.integers(0, 2**32 - 1)


def splitmix64(x):
    """Sebastiano Vigna's splitmix64 of one counter value, in Python's own integers."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


@given(seed=seeds, start=st.integers(0, 10**6), num_tokens=st.integers(0, 50))
def test_stream_any_stretch_is_the_documented_formula(seed, start, num_tokens):
    """1000 + (splitmix64(seed << 32 | k) >> 34), as int64."""
    ids = stream_token_ids(seed, start, start + num_tokens)
    assert ids.dtype == np.int64
    expected = [
        1000 + (splitmix64((seed << 32) | k) >> 34) for k in range(start, start + num_tokens)
    ]
    assert ids.tolist() == expected


@given(seed=seeds, cut=st.integers(0, 60))
def test_stream_in_two_stretches_is_the_whole(seed, cut):
    """Where one starts does not matter."""
    whole = stream_token_ids(seed, 0, 60)
    parts = [stream_token_ids(seed, 0, cut), stream_token_ids(seed, cut, 60)]
    assert np.concatenate(parts).tolist() == whole.tolist()


@given(st.lists(st.tuples(seeds, st.integers(0, 20)), min_size=1, max_size=6))
def test_segment_prompt_joins_the_starts_of_its_streams(segments):
    """Length is known without making a token."""
    prompt = SegmentPrompt(tuple(segments))
    expected = np.concatenate([stream_token_ids(seed, 0, n) for seed, n in segments])
    assert prompt.token_ids().tolist() == expected.tolist()
    assert len(prompt) == len(expected)


def num_common(a, b):
    same = a[: min(len(a), len(b))] == b[: min(len(a), len(b))]
    return len(same) if same.all() else int(same.argmin())


def test_segment_prompts_share_exactly_their_common_segments():
    """What a prefix cache sees."""
    one = SegmentPrompt(((1, 10), (2, 10))).token_ids()
    assert num_common(one, SegmentPrompt(((1, 10), (3, 10))).token_ids()) == 10
    assert num_common(one, SegmentPrompt(((1, 4), (2, 16))).token_ids()) == 4
    assert num_common(one, SegmentPrompt(((1, 10), (2, 30))).token_ids()) == 20
    assert num_common(one, SegmentPrompt(((2, 10),)).token_ids()) == 0


_PIECES = st.lists(st.tuples(st.integers(1, 2), st.integers(1, 3)), min_size=1, max_size=4)
_NAMED = st.one_of(
    _PIECES.map(tuple).map(SegmentPrompt),
    st.builds(
        lambda ids, size, left_out: BlockPrompt(np.array(ids), size, size * len(ids) - left_out),
        st.lists(st.integers(1, 2), min_size=1, max_size=4),
        st.integers(2, 3),
        st.integers(0, 1),
    ),
)


@given(_NAMED, _NAMED)
def test_prompts_are_alike_as_far_as_their_tokens_are_equal(one, other):
    """Of the same kind, all but what streams share across the cut of a segment."""
    num_equal = num_common(one.token_ids(), other.token_ids())
    assert num_alike(one, other) == num_alike(other, one) <= num_equal
    assert num_alike(one, one) == len(one)
    if isinstance(one, BlockPrompt) and isinstance(other, BlockPrompt):
        assert one.block_size != other.block_size or num_alike(one, other) == num_equal
    elif isinstance(one, SegmentPrompt) and isinstance(other, SegmentPrompt):
        assert bool(num_alike(one, other)) == bool(num_equal)


@pytest.mark.parametrize("num_tokens", [1, 511, 512, 513, 1024, 1536])
def test_block_prompt_has_its_length_whatever_the_last_block(num_tokens):
    """The last block may be partial."""
    prompt = BlockPrompt(np.array([5, 6, 7]), 512, num_tokens)
    assert len(prompt) == len(prompt.token_ids()) == num_tokens


@given(
    a=st.lists(st.integers(0, 2**41 - 1), min_size=1, max_size=5),
    b=st.lists(st.integers(0, 2**41 - 1), min_size=1, max_size=5),
)
def test_block_prompts_agree_exactly_on_equal_blocks(a, b):
    """Different ids share not even a token; the largest ids do not overflow."""
    ids = [BlockPrompt(np.array(x), 16, 16 * len(x)).token_ids().reshape(-1, 16) for x in (a, b)]
    for block_a, row_a in zip(a, ids[0], strict=True):
        for block_b, row_b in zip(b, ids[1], strict=True):
            assert (row_a == row_b).all() == (block_a == block_b)
            assert block_a == block_b or not np.intersect1d(row_a, row_b).size
    assert min(ids[0].min(), ids[1].min()) > 0


def test_block_prompt_never_meets_a_stream():
    """Blocks and streams live in ranges of their own."""
    assert BlockPrompt(np.array([0]), 16, 16).token_ids().min() > 1000 + 2**30
    assert stream_token_ids(0, 0, 1000).max() < 1000 + 2**30


def test_array_prompt_is_what_it_was_given():
    """Token ids as they are."""
    prompt = ArrayPrompt(np.array([3, 1, 2]))
    assert (len(prompt), prompt.token_ids().tolist()) == (3, [3, 1, 2])


@given(st.lists(st.tuples(seeds, st.integers(0, 10**6)), max_size=20))
def test_stream_single_tokens_of_many_streams_are_those_of_each(places):
    """One call for many streams, at the price of none of them whole."""
    wanted = [int(stream_token_ids(seed, index, index + 1)[0]) for seed, index in places]
    found = stream_tokens_at(
        np.array([seed for seed, _ in places], dtype=np.int64),
        np.array([index for _, index in places], dtype=np.int64),
    )
    assert found.tolist() == wanted


def test_stream_counters_wrap_around_like_splitmix64s():
    """The counter passes 2**64 within the stretch."""
    first = (2**64 - 5 - 0x9E3779B97F4A7C15) % 2**64
    seed, start = first >> 32, first % 2**32
    expected = [1000 + (splitmix64((seed << 32) + start + k) >> 34) for k in range(10)]
    assert stream_token_ids(seed, start, start + 10).tolist() == expected
