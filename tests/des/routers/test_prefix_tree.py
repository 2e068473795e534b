"""The tree of sent prompts against a plain dictionary of all their prefixes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.core.block_keys import BlockKeys
from sim.des.routers.prefix_aware import NO_MATCH, PrefixTree

KEYS = BlockKeys(1)
PROMPTS = st.lists(st.integers(0, 2), max_size=8)
SENT = st.lists(st.tuples(PROMPTS, st.integers(0, 2)), max_size=25)
ROOM = 10**6


def keys_of(prompt):
    return KEYS.of(np.array(prompt, dtype=np.int64))


def tree_of(sent, max_blocks=ROOM):
    tree = PrefixTree(max_blocks)
    for prompt, replica in sent:
        tree.insert(keys_of(prompt), replica)
    return tree


def beginnings(prompt):
    return [tuple(prompt[: end + 1]) for end in range(len(prompt))]


@given(sent=SENT, asked=PROMPTS)
def test_prefix_tree_finds_the_longest_beginning_and_its_first_owner(sent, asked):
    """As a dictionary from each beginning to the replicas it was sent to, in order."""
    owners = {}
    for prompt, replica in sent:
        for beginning in beginnings(prompt):
            owners.setdefault(beginning, {})[replica] = True
    tree = tree_of(sent)
    known = [beginning for beginning in beginnings(asked) if beginning in owners]
    expected = (len(known), next(iter(owners[known[-1]]))) if known else NO_MATCH
    assert tree.match(keys_of(asked)) == expected
    for replica in range(3):
        assert tree.num_blocks(replica) == sum(replica in held for held in owners.values())


@given(sent=SENT, max_blocks=st.integers(1, 8))
def test_prefix_tree_keeps_within_its_size_what_was_sent_last(sent, max_blocks):
    """No replica has more than allowed; the last prompt is there if it fits, nothing unsent is."""
    tree = PrefixTree(max_blocks)
    known = set()
    for prompt, replica in sent:
        tree.insert(keys_of(prompt), replica)
        known.update(beginnings(prompt))
        assert all(tree.num_blocks(replica) <= max_blocks for replica in range(3))
        if len(prompt) <= max_blocks:
            assert tree.match(keys_of(prompt)).num_blocks == len(prompt)
        found = tree.match(keys_of([0, 1, 2, 0])).num_blocks
        assert found == 0 or tuple([0, 1, 2, 0][:found]) in known


@given(sent=SENT, max_blocks=st.integers(1, 8))
def test_prefix_tree_that_was_sent_other_prompts_forgets_the_old_ones(sent, max_blocks):
    """Nothing stays behind: counts are right, and nobody is found for what all have evicted."""
    tree = tree_of(sent, max_blocks)
    for replica in range(3):
        tree.insert(keys_of([100 + replica] * max_blocks), replica)
        assert tree.num_blocks(replica) == max_blocks
    for prompt, _ in sent:
        assert tree.match(keys_of(prompt)) == NO_MATCH


def test_prefix_tree_evicts_the_branch_that_was_sent_least_recently():
    """The common beginning stays, with the branch that was sent again."""
    tree = tree_of([([1, 1, 2, 2], 0), ([1, 1, 3, 3], 0), ([1, 1, 2, 2], 0)], max_blocks=7)
    tree.insert(keys_of([9]), 0)
    assert tree.match(keys_of([1, 1, 3, 3])).num_blocks == 4
    tree.insert(keys_of([8]), 0)
    assert tree.match(keys_of([1, 1, 3, 3])).num_blocks == 2
    assert tree.match(keys_of([1, 1, 2, 2])).num_blocks == 4
    assert tree.num_blocks(0) == 6


def test_prefix_tree_next_owner_is_found_when_the_first_has_evicted_it():
    """Both were sent it; the first was then sent much else."""
    tree = tree_of([([1, 2], 0), ([1, 2], 1)], max_blocks=3)
    assert tree.match(keys_of([1, 2, 3])) == (2, 0)
    tree.insert(keys_of([5, 5, 5]), 0)
    assert tree.match(keys_of([1, 2, 3])) == (2, 1)
