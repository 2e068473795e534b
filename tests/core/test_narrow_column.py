"""Narrow columns hold the numbers that they were given."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.core.arrays import NarrowColumn

NUMBERS = st.lists(st.one_of(st.integers(-200, 200), st.integers(-(2**63), 2**63 - 1)), max_size=40)


@given(NUMBERS, NUMBERS)
def test_narrow_column_is_the_numbers_in_order(first, then):
    """Of one column or of several, as int64 or in the smallest type."""
    columns = [NarrowColumn.of(np.array(numbers, dtype=np.int64)) for numbers in (first, then)]
    both = NarrowColumn.joined(columns)
    assert both.widened().dtype == np.int64
    assert both.widened().tolist() == both.compact().tolist() == first + then
    assert len(both) == len(first + then)


def test_narrow_column_is_small():
    """Each piece has the width that its own numbers need."""
    numbers = np.arange(100_000) % 100
    numbers[-1] = 2**40
    column = NarrowColumn.of(numbers)
    assert np.array_equal(column.widened(), numbers)
    assert column.num_bytes < 300_000
    assert NarrowColumn.of(numbers[:-1]).compact().dtype == np.int8
