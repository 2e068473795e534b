"""A search over server pools that together have no more GPUs than allowed."""

from itertools import product

import pytest

from sim.core.errors import InputError
from sim.scenario.load import load_scenario_text
from sim.sweep.tune.plan import plan_tune
from sim.sweep.tune.space import num_gpus

DISAGGREGATED = """\
pools:
  fill: {role: prefill, replicas: 1, latency: {dp: 2}}
  answer: {role: decode, replicas: 3}
transfer: {bandwidth_gb_s: 10, bytes_per_token: 1000}
slo: {ttft_ms: 500}
tune: {objective: OBJECTIVE, num_trials: 99, min_slo_attainment: 0.5, max_gpus: MOST, ranges: {
  pools.fill.replicas: {kind: int, min: 1, max: 4},
  pools.fill.latency.dp: {kind: choice, values: [1, 2]},
  pools.answer.replicas: {kind: int, min: 1, max: 8},
  scheduler.page_size: {kind: choice, values: [1, 16, 64]}}}
"""
FILLS, DEGREES, ANSWERS, PAGES = range(1, 5), (1, 2), range(1, 9), 3


@pytest.fixture
def planned(base_text):
    """The plan of a search, and the numbers of its settings: prefill, ranks, decode."""

    def plan(objective, most):
        text = base_text + DISAGGREGATED.replace("OBJECTIVE", objective).replace("MOST", str(most))
        made = plan_tune(load_scenario_text(text))
        return made, [
            tuple(list(made.space.settings(places).values())[:3])
            for places in made.space.all_places()
        ]

    return plan


def test_gpus_of_all_pools_are_counted(base_text):
    """A server with two ranks has two GPUs."""
    disaggregated = load_scenario_text(
        base_text + DISAGGREGATED.replace("OBJECTIVE", "cost").replace("MOST", "9")
    )
    together = load_scenario_text(base_text, ["replicas=3", "latency.dp=2"])
    assert (num_gpus(disaggregated), num_gpus(together)) == (5, 6)


def test_cost_has_all_settings_that_are_small_enough(planned):
    """The search counts the same settings that it tries."""
    made, settings = planned("cost", 9)
    expected = [
        (fills, degree, answers)
        for fills, degree, answers in product(FILLS, DEGREES, ANSWERS)
        if fills * degree + answers <= 9
    ]
    assert settings == [one for one in expected for _ in range(PAGES)]
    assert made.space.num_settings == len(settings)
    assert made.own_is_inside


def test_goodput_has_no_setting_with_room_for_another_server(planned):
    """Room that the ranges cannot fill does not matter: 4 prefill servers of one GPU are most."""
    made, settings = planned("goodput", 9)
    assert made.space.num_settings == len(settings)
    assert set(settings) == {
        *((fills, 1, 9 - fills) for fills in FILLS),
        *((fills, 2, 9 - 2 * fills) for fills in FILLS),
    }
    assert not made.own_is_inside
    assert made.num_trials == len(settings) + 1


@pytest.mark.parametrize(("most", "reason"), [(4, "the scenario itself has 5 GPUs")])
def test_limit_below_the_scenario_itself_is_refused(planned, most, reason):
    """Its own setting is the first trial."""
    with pytest.raises(InputError, match=f"tune.max_gpus: {reason}"):
        planned("cost", most)
