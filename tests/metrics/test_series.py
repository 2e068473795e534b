"""Time series against sums over every single nanosecond."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.metrics.series import StepSeries, from_changes, gauge, occupancy, tokens_per_s
from tests.support.run_logs import request_columns, step_columns

_changes = st.lists(st.tuples(st.integers(0, 60), st.integers(-5, 5)), min_size=1, max_size=12)


@given(_changes, st.lists(st.integers(0, 90), min_size=2, max_size=6, unique=True))
def test_means_equal_average_over_every_nanosecond(changes, edges):
    """Whatever the edges, before, inside or after the series."""
    level = np.zeros(91)
    for at, change in changes:
        level[at:] += change
    t_ns, change = (np.array(column) for column in zip(*changes, strict=True))
    edges_ns = np.array(sorted(edges), dtype=np.float64)
    expected = [
        level[a:b].mean() for a, b in zip(sorted(edges)[:-1], sorted(edges)[1:], strict=True)
    ]
    np.testing.assert_allclose(from_changes(t_ns, change).means(edges_ns), expected, atol=1e-9)


def test_thinned_keeps_area_and_bounds_points():
    """100,000 points become 2,000 whose time-weighted mean is the same."""
    rng = np.random.default_rng(3)
    t_ns = np.cumsum(rng.integers(1, 1_000, 100_000))
    series = StepSeries(t_ns, rng.integers(0, 50, 100_000).astype(float))
    end_ns = int(t_ns[-1]) + 500
    thin = series.thinned(end_ns)
    assert len(thin.t_ns) == 2_000
    window = np.array([t_ns[0], end_ns], dtype=np.float64)
    np.testing.assert_allclose(thin.means(window), series.means(window), rtol=1e-4)


def test_gauge_of_two_replicas_sums_what_each_holds():
    """Each replica's value holds until its own next run, however the two interleave."""
    steps = step_columns(
        replica=[0, 0, 1, 1], t_start_ns=[0, 50, 20, 50], t_end_ns=[50, 80, 50, 90],
        used_tokens=[10, 7, 100, 200],
    )  # fmt: skip
    series = gauge(steps, steps.used_tokens)
    assert series.t_ns.tolist() == [0, 20, 50]
    assert series.value.tolist() == [10, 110, 207]


def test_occupancy_while_nothing_is_in_flight_is_zero():
    """Between two requests with a pause nothing runs, though the last run logged one.

    The row at 10 changes nothing, and is no point of the series.
    """
    steps = step_columns(t_start_ns=[0, 10, 90], t_end_ns=[10, 30, 99], running=[1, 1, 1])
    requests = request_columns(
        arrival_ns=[0, 90, 5], scheduled_ns=[0, 90, -1], finish_ns=[30, 99, -1],
        status=["finished", "finished", "rejected"],
    )  # fmt: skip
    series = occupancy(steps, requests, steps.running)
    assert series.t_ns.tolist() == [0, 30, 90, 99]
    assert series.value.tolist() == [1, 0, 1, 0]


def test_tokens_per_s_spread_each_run_over_its_time():
    """Two replicas, 100 tokens each over different spans; nothing is lost."""
    steps = step_columns(replica=[0, 1], t_start_ns=[0, 500], t_end_ns=[1_000, 1_000])
    rate = tokens_per_s(steps, np.array([100, 100]), np.array([0.0, 500.0, 1_000.0, 2_000.0]))
    np.testing.assert_allclose(rate * 1e-9 * np.array([500, 500, 1_000]), [50, 150, 0])
