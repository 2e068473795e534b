"""Parts of prompts and outputs have the tokens of the whole, without making its token ids."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.core.tokens import (
    ArrayPrompt,
    BlockPrompt,
    JoinedTokens,
    SegmentPrompt,
    kept_part,
    num_common_tokens,
    prompt_part,
)


@st.composite
def prompts(draw):
    """A prompt of each kind."""
    kind = draw(st.sampled_from(["segments", "blocks", "array"]))
    if kind == "segments":
        pairs = st.tuples(st.integers(0, 3), st.integers(0, 9))
        return SegmentPrompt(tuple(draw(st.lists(pairs, max_size=4))))
    num_tokens = draw(st.integers(0, 40))
    if kind == "array":
        return ArrayPrompt(np.arange(num_tokens) % 7)
    block_size = draw(st.integers(1, 9))
    num_blocks = -(-num_tokens // block_size)
    ids = draw(st.lists(st.integers(0, 5), min_size=num_blocks, max_size=num_blocks))
    return BlockPrompt(np.array(ids, dtype=np.int64), block_size, num_tokens)


@given(prompts(), st.data())
def test_any_part_of_a_prompt_is_that_part_of_the_whole(prompt, data):
    """Asked for at once, or kept and cut again before it is looked at."""
    start = data.draw(st.integers(0, len(prompt)))
    stop = data.draw(st.integers(start, len(prompt)))
    whole = prompt.token_ids()
    assert len(whole) == len(prompt)
    assert np.array_equal(prompt.token_ids(start, stop), whole[start:stop])
    part = prompt_part(prompt, start, stop)
    assert len(part) == stop - start
    first = data.draw(st.integers(0, len(part)))
    last = data.draw(st.integers(first, len(part)))
    expected = whole[start:stop][first:last]
    assert np.array_equal(part[first:last], expected)
    assert np.array_equal(kept_part(part, first, last)[:], expected)


@given(prompts(), prompts(), st.data())
def test_any_part_of_joined_tokens_is_that_part_of_the_whole(one, other, data):
    """Whichever of the two it lies in."""
    joined = JoinedTokens(prompt_part(one, 0, len(one)), other.token_ids())
    whole = np.concatenate([one.token_ids(), other.token_ids()])
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    assert len(joined) == len(whole)
    assert np.array_equal(joined[start:stop], whole[start:stop])
    part = joined.part(start, stop)
    assert len(part) == stop - start
    assert np.array_equal(part[:], whole[start:stop])


@given(prompts(), prompts(), prompts(), st.data())
def test_common_tokens_are_counted_as_in_arrays(one, two, three, data):
    """Unless some tokens are no stream's: then nothing is known."""
    others = JoinedTokens(prompt_part(two, 0, len(two)), prompt_part(three, 0, len(three)))
    cut = data.draw(st.integers(0, len(one)))
    start = data.draw(st.integers(0, len(others)))
    num_tokens = data.draw(st.integers(0, min(len(one) - cut, len(others) - start)))
    found = num_common_tokens(prompt_part(one, cut, len(one)), others, start, num_tokens)
    equal = one.token_ids(cut, cut + num_tokens) == others[start : start + num_tokens]
    assert found is None or found == np.logical_and.accumulate(equal).sum()
    if all(isinstance(prompt, SegmentPrompt) for prompt in (one, two, three)):
        assert found is not None


def test_kept_part_of_an_array_does_not_keep_the_array():
    """A small part is copied; a large one is a view, which costs nothing."""
    ids = np.arange(1_000)
    assert kept_part(ids, 10, 20).base is None
    assert kept_part(ids, 0, 900).base is ids
