"""The layout of a step against a layout made token by token."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from realrun.batches.batch_plan import BatchPlan, one_token_rows, pad_decodes, plan_batch
from sim.core.errors import InvariantError


@st.composite
def steps(draw):
    """(page size, rows); a row is (pages, tokens before the step, new tokens, samples)."""
    page_size = draw(st.sampled_from([1, 2, 16, 128]))
    page_ids = iter(draw(st.permutations(range(400))))
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        num_new = draw(st.integers(1, 20))
        num_before = draw(st.integers(0, 30))
        num_pages = -(-(num_before + num_new) // page_size)
        pages = [next(page_ids) for _ in range(num_pages)]
        rows.append((pages, num_before, num_new, draw(st.booleans())))
    return page_size, rows


def table_of(rows, num_spare_columns=0):
    width = max(len(pages) for pages, *_ in rows) + num_spare_columns
    table = np.full((len(rows), width), -1, dtype=np.int32)
    for row, (pages, *_) in enumerate(rows):
        table[row, : len(pages)] = pages
    return table


def plan_of(page_size, rows, num_spare_columns=0):
    return plan_batch(
        page_table=table_of(rows, num_spare_columns),
        query_lens=np.array([new for _, _, new, _ in rows], dtype=np.int32),
        kv_lens=np.array([before + new for _, before, new, _ in rows], dtype=np.int32),
        samples=np.array([samples for *_, samples in rows], dtype=np.int64),
        page_size=page_size,
    )


def decodes(page_size, kv_lens):
    """A decode row of each length, on pages that count up."""
    pages = iter(range(10_000))
    rows = [
        ([next(pages) for _ in range(-(-length // page_size))], length - 1, 1, True)
        for length in kv_lens
    ]
    return plan_of(page_size, rows)


def assert_same(plan, other):
    for name in BatchPlan.__slots__:
        left, right = getattr(plan, name), getattr(other, name)
        np.testing.assert_array_equal(left, right, err_msg=name)
        assert getattr(left, "dtype", None) == getattr(right, "dtype", None), name


@given(steps(), st.integers(0, 3))
def test_plan_equals_its_tokens_written_down_one_by_one(step, num_spare_columns):
    """Every array follows from walking over rows, tokens and pages."""
    page_size, rows = step
    positions, slots, samples, indices = [], [], [], []
    qo_indptr, kv_indptr = [0], [0]
    for pages, num_before, num_new, does_sample in rows:
        for position in range(num_before, num_before + num_new):
            positions.append(position)
            slots.append(pages[position // page_size] * page_size + position % page_size)
        qo_indptr.append(len(positions))
        indices += pages
        kv_indptr.append(len(indices))
        if does_sample:
            samples.append(len(positions) - 1)
    plan = plan_of(page_size, rows, num_spare_columns)
    assert plan.positions.tolist() == positions
    assert plan.write_slots.tolist() == slots
    assert plan.qo_indptr.tolist() == qo_indptr
    assert plan.kv_indptr.tolist() == kv_indptr
    assert plan.kv_indices.tolist() == indices
    assert plan.sample_tokens.tolist() == samples
    last = [(before + new) - page_size * (len(pages) - 1) for pages, before, new, _ in rows]
    assert plan.last_page_len.tolist() == last
    assert plan.decode_only == all(new == 1 and does_sample for *_, new, does_sample in rows)
    assert (plan.num_rows, plan.num_tokens) == (len(rows), len(positions))


@given(steps())
def test_plan_arrays_have_the_widths_that_kernels_take(step):
    """Offsets, lengths and page ids are int32; positions and slots int64."""
    plan = plan_of(*step)
    wide = {"positions", "write_slots", "sample_tokens"}
    for name in set(BatchPlan.__slots__) - {"page_size", "samples_all"}:
        assert getattr(plan, name).dtype == (np.int64 if name in wide else np.int32), name


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 4))
def test_padding_is_a_row_of_one_token_on_the_scratch_page(kv_lens, num_pads):
    """A padded plan is the plan of the rows and of `num_pads` first tokens on the scratch page."""
    plan = decodes(16, kv_lens)
    pages = np.split(plan.kv_indices, plan.kv_indptr[1:-1])
    rows = [(ids.tolist(), n - 1, 1, True) for ids, n in zip(pages, kv_lens, strict=True)]
    rows += [([9999], 0, 1, True)] * num_pads
    assert_same(pad_decodes(plan, len(rows), 9999), plan_of(16, rows))


@given(steps())
def test_rows_of_one_token_are_the_tokens_of_rows_with_drafts(step):
    """Each attends to what came before it, on the pages of its row."""
    page_size, rows = step
    verified = [(pages, before, new, new) for pages, before, new, _ in rows]
    split = [
        (pages[: before // page_size + 1], before, 1, True)
        for pages, first, new, _ in rows
        for before in range(first, first + new)
    ]
    plan = plan_of(page_size, verified)
    assert_same(one_token_rows(plan), plan_of(page_size, split))
    num_read = sum(before + 1 for _, before, *_ in split)
    num_read_once = sum(first + new for _, first, new, _ in rows)
    assert num_read - num_read_once <= plan.num_tokens_read_again <= num_read_once * 20


def test_slots_past_32_bits_do_not_wrap():
    """Page ids are int32, slots are not: 2^27 pages of 128 tokens."""
    plan = plan_of(128, [([2**27], 0, 1, True)])
    assert plan.write_slots.tolist() == [2**34]


def test_padding_of_a_prefill_is_refused():
    """Only decode-only plans go through recorded passes."""
    with pytest.raises(InvariantError):
        pad_decodes(plan_of(4, [([1], 0, 3, True)]), 4, 9)


def test_padding_to_fewer_rows_is_refused():
    """A recorded pass never drops rows."""
    with pytest.raises(InvariantError):
        pad_decodes(decodes(4, [1, 2, 3]), 2, 9)


@pytest.mark.parametrize("row", [([1], 3, 0, True), ([1], -2, 3, True), ([1], 3, 2, True)])
def test_impossible_rows_are_refused(row):
    """No new tokens, a negative prefix, or more tokens than pages."""
    with pytest.raises(InvariantError):
        plan_of(4, [row])
