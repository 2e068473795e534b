"""Hashes of full blocks are equal exactly if all tokens from the start are equal."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.core.tokens import stream_token_ids
from sim.vllm.request import prefix_hashes

_TOKENS = st.lists(st.integers(0, 50), min_size=24, max_size=24)


def hashes(token_ids, block_size=4):
    return prefix_hashes(np.array(token_ids, dtype=np.int64), block_size, 0, 0).tolist()


@given(_TOKENS, st.integers(1, 5))
def test_hashes_made_in_parts_are_those_made_at_once(token_ids, num_first):
    """What the first blocks come to is all that the others need to know of them."""
    whole = hashes(token_ids)
    ids = np.array(token_ids, dtype=np.int64)
    first = prefix_hashes(ids[: 4 * num_first], 4, 0, 0).tolist()
    others = prefix_hashes(ids[4 * num_first :], 4, num_first, first[-1]).tolist()
    assert first + others == whole


@given(_TOKENS, st.integers(0, 23))
def test_hashes_from_a_changed_token_on_differ(token_ids, place):
    """Earlier blocks keep their names; its own and all later ones have others."""
    changed = [*token_ids]
    changed[place] += 1
    before, after = hashes(token_ids), hashes(changed)
    first = place // 4
    assert before[:first] == after[:first]
    assert not set(before[first:]) & set(after)


def test_hashes_tell_the_order_of_tokens_and_of_blocks():
    """Sums of the same numbers in another order."""
    orders = ([1, 2, 3, 4, 5, 6, 7, 8], [2, 1, 3, 4, 5, 6, 7, 8], [5, 6, 7, 8, 1, 2, 3, 4])
    assert len({hashes(order)[1] for order in orders}) == len(orders)


def test_hashes_of_equal_blocks_differ_by_their_place():
    """A block says where it stands and what stands before it."""
    assert len(set(hashes([7] * 400))) == 100


def test_hashes_of_many_prompts_do_not_meet():
    """As many names as there are different prefixes."""
    names = set()
    for seed in range(200):
        names.update(hashes(stream_token_ids(seed, 0, 400)))
    assert len(names) == 200 * 100
