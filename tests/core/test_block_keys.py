"""Keys of blocks are equal exactly if the prompts are equal up to the block's end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.block_keys import BlockKeys
from sim.core.tokens import BlockPrompt, stream_token_ids

IDS = st.lists(st.integers(0, 3), max_size=40)


@given(one=IDS, other=IDS, block_tokens=st.integers(1, 5))
def test_block_keys_agree_as_far_as_whole_blocks_do(one, other, block_tokens):
    """Few different ids, so that blocks repeat within a prompt and between two."""
    keys = [BlockKeys(block_tokens).of(np.array(ids, dtype=np.int64)) for ids in (one, other)]
    assert [len(k) for k in keys] == [len(one) // block_tokens, len(other) // block_tokens]
    for block in range(min(map(len, keys))):
        end = (block + 1) * block_tokens
        assert (keys[0][block] == keys[1][block]) == (one[:end] == other[:end])


@given(ids=IDS, block_tokens=st.integers(1, 5), cut=st.integers(0, 40))
def test_block_keys_go_on_from_the_key_before(ids, block_tokens, cut):
    """Keys of a prompt's end need the key before it, and none of the tokens before it."""
    keys, tokens = BlockKeys(block_tokens), np.array(ids, dtype=np.int64)
    whole = keys.of(tokens).tolist()
    cut = min(cut, len(whole))
    before = whole[cut - 1] if cut else 0
    assert keys.of(tokens[cut * block_tokens :], cut, before).tolist() == whole[cut:]


def test_block_keys_of_many_prompts_do_not_collide():
    """Ids of a trace's blocks differ in high bits only; streams differ anywhere."""
    keys = BlockKeys(16)
    blocks = [BlockPrompt(np.array([i]), 512, 512).token_ids() for i in range(3_000)]
    streams = [stream_token_ids(seed, 0, 512) for seed in range(3_000)]
    seen = np.concatenate([keys.of(ids) for ids in (*blocks, *streams)])
    assert len(np.unique(seen)) == len(seen) == 6_000 * 32


def test_block_keys_are_the_same_in_every_process():
    """Written down: no hash seed and no order of memory is in them."""
    assert BlockKeys(4).of(np.arange(9, dtype=np.int64)).tolist() == [
        6800583398424398659,
        11302792426973839486,
    ]


@pytest.mark.parametrize("num_tokens", [0, 3])
def test_block_keys_of_less_than_a_block_are_none(num_tokens):
    """A prompt that is too short has nothing to compare."""
    assert BlockKeys(4).of(np.zeros(num_tokens, dtype=np.int64)).tolist() == []
