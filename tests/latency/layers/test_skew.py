"""The correction for decode rows of unequal context: its alpha, and its effect."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.latency.curves import Curve
from sim.latency.layers.attention import Bins, LayersDecodeTimes, SkewAxes, SkewTable

AXES = SkewAxes(
    rows=Bins((2.0, 8.0, 1e6), ("n<=2", "n<=8", "n>8")),
    rate=Bins((0.25, 0.6, 1.01), ("low", "middle", "high")),
    longest=Bins((1024.0, 1e9), ("short", "long")),
    cached=Bins((0.0, 1e9), ("none", "some")),
)
ALPHAS = {
    (0, "n<=8", "low", "short", "none"): 0.1,
    (0, "n<=8", "middle", "short", "none"): 0.2,
    (0, "n<=8", "high", "short", "none"): 0.3,
    (0, "n<=8", "middle", "long", "none"): 0.4,
    (0, "n>8", "middle", "short", "none"): 0.5,
    (16, "n<=8", "middle", "short", "none"): 0.6,
    (16, "n<=8", "middle", "short", "some"): 0.7,
    (64, "n<=8", "middle", "short", "none"): -0.8,
}
TABLE = SkewTable(AXES, ALPHAS, default=0.9)


def alpha(rows, mean, longest, chunk=0.0, cached=0.0, *, shortest=0.0):
    """If the two times are 0 and 1, the corrected time is alpha itself."""
    return TABLE.alphas(rows, chunk, cached).corrected(mean, longest, shortest, (0.0, 1.0))


@pytest.mark.parametrize(
    ("batch", "wanted"),
    [
        ((4, 100, 1000), 0.1),
        ((4, 250, 1000), 0.1),
        ((4, 251, 1000), 0.2),
        ((4, 600, 1000), 0.2),
        ((4, 1000, 1000), 0.3),
        ((4, 512, 1024), 0.2),
        ((4, 512, 1025), 0.4),
        ((3, 300, 1000), 0.2),
        ((8, 300, 1000), 0.2),
        ((9, 300, 1000), 0.5),
        ((2_000_000, 300, 1000), 0.5),
        ((2, 300, 1000), 0.9),
        ((4, 300, 1000, 16), 0.6),
        ((4, 300, 1000, 16, 1), 0.7),
        ((4, 300, 1000, 40), 0.6),
        ((4, 300, 1000, 41), -0.8),
        ((4, 300, 1000, 8), 0.2),
        ((4, 300, 1000, 5000), -0.8),
    ],
)
def test_skew_takes_the_alpha_of_the_batchs_bin(batch, wanted):
    """Rows, mean / longest, longest; the chunk nearest to the step's, and its cached tokens.

    A bin ends with its own edge, one without an alpha takes the default.
    """
    assert alpha(*batch) == wanted


@pytest.mark.parametrize(
    ("mean", "longest", "shortest", "wanted"),
    [
        (300, 1000, 0, 0.2),
        (300, 1000, 66, 0.2),
        (300, 1000, 67, 0.1),
        (300, 1000, 300, 0.1),
        (900, 1000, 0, 0.3),
        (900, 1000, 750, 0.2),
        (900, 1000, 751, 0.2),
        (900, 1000, 749, 0.3),
        (900, 1000, 867, 0.1),
        (1000, 1000, 1000, 0.1),
        (1500, 2000, 1300, 0.4),
        (0, 0, 0, 0.1),
    ],
)
def test_skew_rate_counts_from_the_shortest_context(mean, longest, shortest, wanted):
    """How far the mean is from the shortest context towards the longest: 0.25 and 0.6."""
    assert alpha(4, mean, longest, shortest=shortest) == wanted


def test_skew_moves_from_the_mean_towards_the_longest():
    """A fifth of the way from 50 to 90."""
    assert TABLE.alphas(4).corrected(300, 1000, 0, (50.0, 90.0)) == 58.0


def test_skew_changes_nothing_where_the_longest_context_is_not_slower():
    """If contexts are equal, or the longest one is faster by noise."""
    alphas = TABLE.alphas(4)
    assert alphas.corrected(300, 1000, 100, (50.0, 50.0)) == 50.0
    assert alphas.corrected(300, 1000, 100, (50.0, 40.0)) == 50.0
    assert alphas.corrected(300, 300, 300, (50.0, 50.0)) == 50.0
    assert alphas.corrected(0, 0, 0, (50.0, 50.0)) == 50.0


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2000),
            st.integers(0, 4000),
            st.integers(0, 2000),
            st.floats(0, 1e6),
            st.floats(0, 1e6),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_skew_of_many_batches_equals_one_by_one(batches):
    """To the bit."""
    alphas = TABLE.alphas(4)
    *contexts, at_mean, at_longest = (
        np.array(column, dtype=np.float64) for column in zip(*batches, strict=True)
    )
    many = alphas.corrected_many(*contexts, (at_mean, at_longest))
    one = [alphas.corrected(*contexts, times) for *contexts, times in _with_pairs(batches)]
    assert many.tolist() == one


@given(
    rows=st.integers(1, 300),
    mean=st.integers(1, 5_000),
    extra=st.integers(0, 20_000),
    less=st.integers(0, 5_000),
    known=st.tuples(st.booleans(), st.booleans()),
    fixed_ns=st.floats(0, 1e9),
    values=st.lists(st.floats(0, 1e4), min_size=3, max_size=3),
)
def test_decode_line_a_run_equals_its_steps(rows, mean, extra, less, known, fixed_ns, values):
    """To the bit, with every row growing by a token, the longest and the shortest with them."""
    line = LayersDecodeTimes(
        rows,
        fixed_ns,
        Curve([16, 1000, 4096], values),
        scale_ns=32_000.0,
        alphas=TABLE.alphas(rows),
    )
    context = rows * mean + extra % rows
    longest = mean + extra if known[0] else 0
    shortest = max(mean - less, 1) if known[1] else 0
    run = line.run_ns(context, longest, shortest, 50).tolist()
    steps = [
        line.step_ns(context + i * rows, longest and longest + i, shortest and shortest + i)
        for i in range(50)
    ]
    assert run == steps
    assert min(run) >= 1


@pytest.mark.parametrize(
    ("mean", "longest", "shortest", "slower"),
    [(301, 1001, 67, range(24)), (301, 1001, 68, []), (241, 1001, 0, range(14, 24))],
)
def test_decode_line_rows_of_a_run_grow_together(mean, longest, shortest, slower):
    """So the rate stays, just above a quarter or just below; not if the shortest is not known.

    Which of the steps take the greater alpha: their share of the way to the longest context.
    """
    line = LayersDecodeTimes(4, 0.0, Curve([0, 9_000], [0.0, 9e6]), alphas=TABLE.alphas(4))
    run = line.run_ns(4 * mean, longest, shortest, 24)
    steps = [
        line.step_ns(4 * (mean + i), longest + i, shortest and shortest + i) for i in range(24)
    ]
    assert run.tolist() == steps
    mean_ns = 1000 * (mean - 1 + np.arange(24))
    alphas = (run - mean_ns) / (1000 * (longest - mean))
    assert alphas.round(6).tolist() == [0.2 if i in slower else 0.1 for i in range(24)]


def test_decode_line_of_one_row_or_of_an_unknown_longest_has_no_skew():
    """One row's context is the mean context."""
    curve, alphas = Curve([0, 1000], [0.0, 1000.0]), TABLE.alphas(4)
    for rows, longest, shortest, wanted in (
        (1, 501, 501, 500),
        (4, 0, 0, 500),
        (4, 0, 401, 500),
        (4, 1001, 0, 600),
        (4, 1001, 401, 550),
    ):
        line = LayersDecodeTimes(rows, 0.0, curve, alphas=alphas)
        assert line.step_ns(501 * rows, longest, shortest) == wanted
        assert line.run_ns(501 * rows, longest, shortest, 1).tolist() == [wanted]


def _with_pairs(batches):
    return [(*contexts, (at_mean, at_longest)) for *contexts, at_mean, at_longest in batches]
