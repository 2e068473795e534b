"""Decode rows and KV use, by hand."""

import pytest

from sim.core.batch import ForwardMode
from sim.metrics.rates import occupancy_metrics
from tests.support.run_logs import step_columns


def test_occupancy_of_three_runs_equals_hand_computation():
    """A prefill, ten decode steps of 4 rows, a mixed step with 2: 42 rows in 11 decoding steps."""
    steps = step_columns(
        mode=[ForwardMode.EXTEND, ForwardMode.DECODE, ForwardMode.MIXED],
        num_steps=[1, 10, 1],
        num_decode_rows=[0, 4, 2],
        free_tokens=[900, 800, 700],
        evictable_tokens=[0, 0, 100],
        used_tokens=[100, 200, 200],
        used_token_steps=[100, 1_600, 200],
        queue=[0, 3, 1],
    )
    found = occupancy_metrics(steps)
    assert found["mean_decode_rows"] == pytest.approx(42 / 11)
    assert found["max_decode_rows"] == 4
    assert found["max_queue_length"] == 3
    assert found["mean_kv_used_pct"] == pytest.approx(100 * 1_900 / 12_000)


def test_occupancy_without_steps_is_undefined():
    """Nothing ran: there is no mean."""
    assert set(occupancy_metrics(step_columns()).values()) == {None}
