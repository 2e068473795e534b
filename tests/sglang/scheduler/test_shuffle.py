"""The shuffle of policy `random` is Python's own."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.sglang.policies.orders import Shuffle


@given(
    seed=st.integers(0, 100) | st.integers(0, 2**100),
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=6),
)
def test_shuffle_any_seed_equals_pythons(seed, sizes):
    """Call after call, whatever the lengths; the input stays as it is."""
    shuffle, reference = Shuffle(seed), random.Random(seed)
    for size in sizes:
        items = list(range(size))
        expected = list(items)
        reference.shuffle(expected)
        assert shuffle(items) == expected
        assert items == list(range(size))


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**32 + 1, 2**64, 3 * 2**64 + 5])
def test_shuffle_at_word_boundaries_equals_pythons(seed):
    """Seeds above 32 bits are fed word by word."""
    expected = list(range(50))
    random.Random(seed).shuffle(expected)
    assert Shuffle(seed)(range(50)) == expected
