"""Token streams are chosen so that prompts share exactly what their tokens share."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.core.tokens import SegmentPrompt
from sim.workload.results.known_prompts import PrefixStreams

# Few different tokens, so that much is shared.
TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=12)


def ids(tokens):
    return np.array(tokens, dtype=np.int64)


def alike(some, others):
    differ = [i for i, pair in enumerate(zip(some, others, strict=False)) if pair[0] != pair[1]]
    return differ[0] if differ else min(len(some), len(others))


def made_of(segments):
    return SegmentPrompt(tuple(segments)).token_ids().tolist()


@given(st.lists(TOKENS, min_size=2, max_size=8))
def test_prompts_share_exactly_what_their_tokens_share(prompts):
    streams = PrefixStreams()
    made = [made_of(streams.add(ids(prompt), len(prompt))[0]) for prompt in prompts]
    for one, one_made in zip(prompts, made, strict=True):
        assert len(one_made) == len(one)
        for other, other_made in zip(prompts, made, strict=True):
            assert alike(one_made, other_made) == alike(one, other)


@given(st.lists(TOKENS, min_size=2, max_size=8), st.integers(2, 5), st.data())
def test_blocks_are_shared_whole_and_in_part(prompts, unit, data):
    """Two prompts agree on the tokens of a block that both have, also of a partial last one."""
    streams = PrefixStreams(unit)
    lengths = [unit * len(each) - data.draw(st.integers(0, unit - 1)) for each in prompts]
    made = [
        made_of(streams.add(ids(prompt), length)[0])
        for prompt, length in zip(prompts, lengths, strict=True)
    ]
    for one, one_made, length in zip(prompts, made, lengths, strict=True):
        assert len(one_made) == length
        for other, other_made in zip(prompts, made, strict=True):
            blocks = alike(one, other)
            assert alike(one_made, other_made) == min(unit * blocks, len(one_made), len(other_made))


@given(TOKENS, TOKENS, TOKENS)
def test_later_turn_finds_the_answer(prompt, answer, more):
    """A prompt that goes on after an earlier one's answer is made of that answer's stream."""
    streams = PrefixStreams()
    first, seed = streams.add(ids(prompt), len(prompt), ids(answer))
    later, _ = streams.add(ids([*prompt, *answer, *more]), len([*prompt, *answer, *more]))
    whole = made_of([*first, (seed, len(answer))])
    assert made_of(later)[: len(whole)] == whole


def test_unknown_prompts_share_nothing():
    streams = PrefixStreams()
    first, seed = streams.add(ids([]), 9)
    second, other_seed = streams.add(ids([]), 9)
    assert len({first[0][0], second[0][0], seed, other_seed}) == 4


def test_prompt_known_in_part_shares_that_part():
    streams = PrefixStreams()
    whole, _ = streams.add(ids([1, 2, 3, 4]), 4)
    part, _ = streams.add(ids([1, 2]), 4)
    assert alike(made_of(whole), made_of(part)) == 2
