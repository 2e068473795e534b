"""How the new-token ratio changes (rule 10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.sglang.config import SchedulerConfig
from sim.sglang.scheduler.decode import NewTokenRatio
from sim.workload.workload import listed
from tests.support.serve import serve
from tests.support.workloads import scripted

configs = st.builds(
    SchedulerConfig,
    schedule_conservativeness=st.floats(0.01, 3),
    init_new_token_ratio=st.floats(0.05, 1),
    min_new_token_ratio_factor=st.floats(0, 1),
    new_token_ratio_decay_steps=st.integers(1, 700),
)


@pytest.mark.parametrize(("conservativeness", "start"), [(1.0, 0.7), (0.5, 0.35), (2.0, 1.0)])
def test_ratio_starts_at_the_scaled_value_at_most_1(conservativeness, start):
    """0.7 times the conservativeness, never more than everything."""
    config = SchedulerConfig(schedule_conservativeness=conservativeness)
    assert NewTokenRatio(config).current == pytest.approx(start)


def test_ratio_decays_in_equal_steps_to_its_floor():
    """Half way after 300 steps, 0.14 of the start after 600, and no further."""
    ratio = NewTokenRatio(SchedulerConfig())
    ratio.decay()
    assert ratio.current == pytest.approx(0.7 - 0.7 * 0.86 / 600)
    ratio.decay_steps(299)
    assert ratio.current == pytest.approx(0.7 * (1 + 0.14) / 2)
    ratio.decay_steps(302)
    assert ratio.current == pytest.approx(0.098)
    floor = ratio.current
    ratio.decay()
    assert ratio.current == floor


@given(config=configs, first=st.integers(0, 400), num_steps=st.integers(0, 800))
def test_ratio_many_steps_at_once_equal_single_ones(config, first, num_steps):
    """To the bit, from wherever they start."""
    many, single = NewTokenRatio(config), NewTokenRatio(config)
    expected = []
    for _ in range(first + num_steps):
        single.decay()
        expected.append(single.current)
    assert many.decay_steps(first) + many.decay_steps(num_steps) == expected
    assert many.current == single.current


def test_ratio_after_a_retraction_is_what_was_used_plus_20_a_row():
    """(generated + 20 a row) / (limits + 1), at most 1; a reset goes back to the start."""
    ratio = NewTokenRatio(SchedulerConfig())
    ratio.after_retraction([(10, 100), (30, 200)])
    assert ratio.current == 80 / 301
    ratio.after_retraction([(90, 100)])
    assert ratio.current == 1.0
    ratio.after_retraction([])
    assert ratio.current == 0.0
    ratio.reset()
    assert ratio.current == 0.7


def test_ratio_in_a_run_decays_with_pure_decode_steps_and_resets_when_idle():
    """Prefill steps leave it alone; a pause of the server brings it back."""
    requests = [
        scripted("a", (1, 10), output=6),
        scripted("b", (2, 10), output=6, arrival_ns=16_000_000),
        scripted("c", (3, 10), output=6, arrival_ns=10**9),
    ]
    steps = serve(listed(requests), SchedulerConfig(disable_overlap_schedule=True)).steps
    expected = NewTokenRatio(SchedulerConfig())
    for step in steps:
        if step["prefill"] and step["prefill"][0][0] == "c":
            expected.reset()
        if step["mode"] == "decode":
            expected.decay()
        assert step["ratio"] == expected.current
    assert [step["mode"] for step in steps].count("extend") == 3
