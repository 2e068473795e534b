"""Weighted statistics against numpy on the expanded samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.metrics import latencies
from sim.metrics.latencies import statistics

_groups = st.lists(
    st.tuples(st.integers(0, 10**12), st.integers(0, 60)), min_size=1, max_size=30
).filter(lambda groups: any(count for _, count in groups))


@given(_groups, st.sampled_from((1, 3, 1 << 18)))
def test_statistics_weighted_equal_numpy_on_expanded_samples(groups, piece):
    """A value with a count weighs as much as that many equal samples, in one piece or in many."""
    values = np.array([value for value, _ in groups])
    counts = np.array([count for _, count in groups])
    samples = np.repeat(values / 1e6, counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latencies, "_PIECE", piece)
        found = statistics(values, counts, unit=10**6)
    for name, percent in {"median": 50, "p90": 90, "p95": 95, "p99": 99}.items():
        assert found[name] == pytest.approx(np.percentile(samples, percent), rel=1e-12, abs=1e-12)
    assert found["mean"] == pytest.approx(samples.mean(), rel=1e-12)
    assert found["std"] == pytest.approx(samples.std(), rel=1e-7, abs=1e-6)
    assert found["max"] == samples.max()


def test_statistics_without_samples_are_undefined():
    """No sample has no mean and no percentile."""
    assert set(statistics(np.zeros(0)).values()) == {None}
    assert set(statistics(np.array([3.0]), np.array([0])).values()) == {None}
