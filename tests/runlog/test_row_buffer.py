"""Rows go in, the same numbers come out as columns."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.runlog.buffers import FurtherBuffer, RowBuffer

NUMBERS = st.one_of(
    st.integers(-200, 200), st.integers(-(2**40), 2**40), st.sampled_from([0, 2**63 - 1, -(2**63)])
)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=30))
def test_columns_are_the_rows_numbers(rows):
    """Whatever width they need."""
    buffer = RowBuffer(3)
    for row in rows:
        buffer.append(row)
    columns = [column.widened() for column in buffer.take_columns()]
    assert [column.dtype for column in columns] == [np.int64] * 3
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == rows


def test_many_rows_keep_their_order():
    """Several packs, each with widths of its own; numbers grow from one byte to five."""
    buffer = RowBuffer(2)
    numbers = np.arange(50_000) ** 2
    for number in numbers.tolist():
        buffer.append((number, -number))
    squares, negatives = [column.widened() for column in buffer.take_columns()]
    assert np.array_equal(squares, numbers)
    assert np.array_equal(negatives, -numbers)


def test_no_rows_make_empty_columns():
    """A run without steps has tables all the same."""
    assert [len(column) for column in RowBuffer(2).take_columns()] == [0, 0]


def test_times_of_further_steps_are_differences():
    """Of each run the first wait begins where the step before it has ended, in every pack."""
    rng = np.random.default_rng(1)
    buffer = FurtherBuffer()
    waited, device = [], []
    for _ in range(300):
        times = rng.integers(0, 10**6, (2, rng.integers(0, 200)))
        before = int(rng.integers(0, 10**9))
        ends = before + times.sum(axis=0).cumsum()
        buffer.append(before, ends - times[1], ends)
        waited += times[0].tolist()
        device += times[1].tolist()
    columns = [column.widened().tolist() for column in buffer.take()]
    assert len(waited) > 1 << 14
    assert columns == [waited, device]
