"""The pages that decode steps will need equal a count of them row by row."""

from hypothesis import given
from hypothesis import strategies as st

from sim.engine.decode_run import PageDemand


def new_pages(lengths, page_size, step):
    """Pages that a step begins: rows whose last page is full after the steps before."""
    return sum((length + step) % page_size == 0 for length in lengths)


@st.composite
def batches(draw):
    page_size = draw(st.sampled_from([1, 2, 3, 8]))
    lengths = draw(st.lists(st.integers(1, 30), min_size=1, max_size=12))
    cycle = [new_pages(lengths, page_size, step) for step in range(page_size)]
    return lengths, page_size, PageDemand(cycle, len(lengths))


@given(batches(), st.integers(0, 60))
def test_after_adds_up_single_steps(batch, num_steps):
    """The total, its sum over the steps, and the total after each step."""
    lengths, page_size, demand = batch
    taken, totals = 0, []
    for step in range(num_steps):
        taken += new_pages(lengths, page_size, step)
        totals.append(taken)
    assert demand.after(num_steps) == (taken, sum(totals))
    assert demand.after_each(num_steps).tolist() == totals


@given(batches(), st.integers(0, 60), st.integers(0, 80), st.booleans())
def test_num_affordable_ends_before_the_first_step_that_lacks_pages(
    batch, num_steps, free_pages, spares
):
    """Each step needs its new pages free, or a page for every row where spares are asked for."""
    lengths, page_size, demand = batch
    expected = 0
    free = free_pages
    while expected < num_steps:
        needed = new_pages(lengths, page_size, expected)
        if free < (len(lengths) if spares else needed):
            break
        free -= needed
        expected += 1
    assert demand.num_affordable(num_steps, free_pages, spares=spares) == expected
