"""The search for the largest load that servers of one size bear."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.scenario.load import load_scenario_text
from sim.sweep.capacity.loads import Loads, largest_size
from sim.sweep.capacity.plan import plan_capacity

SPLIT = """\
plan: {min_slo_attainment: 0.9, max_replicas: 6, gpus: {any: {}}, dp: [1, 2], max_gpus: 8,
  disaggregated: {gpu_bandwidth_gb_s: 5}}
slo: {ttft_ms: 500}
"""
# A search ends at the load next to 512 times the plan's own, and a step is of at most 100 %.
LEAST_END = 512 / 2**0.5


def run(loads, wanted):
    """The numbers that are tried where loads of up to `wanted` keep the SLO."""
    tried = []
    while loads.next_trials:
        [(number,)] = loads.next_trials
        tried.append(number)
        loads.tell((number,), holds=number <= wanted)
    return tried


@given(st.floats(0.01, 1), st.floats(1e-4, 1e4), st.integers(-900, 900), st.integers(-900, 900))
def test_load_and_the_next_one_are_both_tried(step, first, wanted, later):
    """Whatever the first seed alone found; and no load is tried twice with the same seeds."""
    loads = Loads((1,), step, first)
    for most in (wanted, later):
        tried = run(loads, most)
        assert len(tried) == len(set(tried)) <= 30
        if loads.best is None:
            assert loads.nearest_failed == (min(tried),)
            assert loads.load(loads.nearest_failed) < 1 / LEAST_END
        else:
            assert loads.best == loads.best_possible
            assert loads.best[0] in tried
            is_open = loads.best == (max(tried),)
            assert loads.load(loads.best) > LEAST_END if is_open else loads.best == (most,)
            assert is_open or most + 1 in tried
        loads.begin_again()


def test_the_second_search_takes_two_trials_if_the_first_was_right():
    loads = Loads((3,), 0.1)
    assert run(loads, 17) == [0, 2, 8, 26, 17, 21, 19, 18]
    loads.begin_again()
    assert run(loads, 17) == [17, 18]
    assert loads.load((0,)) == 1
    assert loads.load((1,)) == pytest.approx(1.1)


def test_loads_that_look_small_are_known_before_they_are_tried():
    """A search that need not look at them says so by its best possible load."""
    loads = Loads((3,), 0.1, 2.0, 2.5)
    assert loads.load(loads.best_possible) == pytest.approx(2.5, rel=0.05)
    assert loads.load(loads.next_trials[0]) == pytest.approx(2, rel=0.05)
    # The estimate may be wrong.
    run(loads, 30)
    assert loads.best == loads.best_possible == (30,)


def test_largest_size_has_the_kind_that_is_busier_more_often(base_text):
    """Of prefill and decode servers, within the limits of servers and of GPUs."""
    plan = plan_capacity(load_scenario_text(base_text + SPLIT))
    together, split = plan.candidates[1], plan.candidates[-1]
    assert largest_size(together, (7.0,)) == (4,)
    # Two GPUs for each server of either kind, and eight in all.
    assert largest_size(split, (1.0, 1.0)) == (2, 2)
    assert largest_size(split, (0.1, 1.0)) == (1, 3)
    assert largest_size(split, (0.0, 0.0)) == (2, 2)
    few = replace(split, max_gpus=None, max_replicas=5)
    assert largest_size(few, (3.0, 1.0)) == (3, 2)
