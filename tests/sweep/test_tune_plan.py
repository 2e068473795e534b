"""Tune sections: errors before anything runs, and errors that only trials show."""

import pytest

from sim.core.errors import InputError
from sim.scenario.load import load_scenario_text
from sim.sweep.tune.plan import plan_tune

SLO = "slo: {ttft_ms: 500}\n"


@pytest.fixture
def planned(base_text):
    """Plan the base scenario with these ranges, which begin on line 20."""

    def plan(ranges, *overrides, slo=SLO):
        section = "tune:\n  objective: goodput\n  num_trials: 6\n  ranges:\n"
        lines = "".join(f"    {line}\n" for line in ranges.splitlines())
        text = f"{base_text}{slo}{section}{lines}"
        return plan_tune(load_scenario_text(text, overrides, name="study.yaml"))

    return plan


REFUSED = {
    "scheduler.page_sizes: {kind: int, min: 1, max: 2}": "study.yaml:20: tune:"
    " scheduler.page_sizes=1: unknown key (did you mean page_size?)",
    "replicas: {kind: int, min: 0, max: 2}": "study.yaml:20: tune: replicas=0: must be at least 1,"
    " got 0",
    "replicas: {kind: int, min: 1, max: 9999}": "study.yaml:20: tune: replicas=9999: must be at"
    " most 4096, got 9999",
    "replicas: {kind: uniform, min: 1, max: 2}": "study.yaml:20: tune: replicas=1.0: must be a"
    " whole number, got 1.0",
    "replicas: {kind: int, min: 2, max: 1}": "study.yaml:20: tune.ranges.replicas: max must be at"
    " least min, got 2 to 1",
    "replicas: {kind: choice, values: []}": "study.yaml:20: tune.ranges.replicas.values: must have"
    " 1 or more items, got 0",
    "replicas: {kind: choice, values: [1, 2, 1]}": "study.yaml:20: tune.ranges.replicas.values.2: 1"
    " is given twice",
    "replicas: {kind: loguniform, min: 0, max: 1}": "study.yaml:20: tune.ranges.replicas.min: must"
    " be greater than 0, got 0",
    "replicas: {kind: int, min: 1, max: 2, step: 0}": "study.yaml:20: tune.ranges.replicas.step:"
    " must be at least 1, got 0",
    "replicas: {kind: gauss}": "study.yaml:20: tune.ranges.replicas.kind: unknown kind 'gauss'"
    " (one of: uniform, loguniform, int, choice)",
    "scheduler.schedule_policy: {kind: choice, values: [fcfs, lmp]}": "study.yaml:20: tune:"
    " scheduler.schedule_policy=\"lmp\": unknown policy 'lmp' (did you mean lpm?)",
    "seed: {kind: int, min: 1, max: 2}": "study.yaml:20: tune.ranges.seed: give the seeds as"
    " tune.seeds",
    "slo.ttft_ms: {kind: uniform, min: 1, max: 2}": "study.yaml:20: tune.ranges.slo.ttft_ms:"
    " cannot be tuned",
    "scheduler: {kind: choice, values: [{max_total_tokens: 64}]}\n"
    "scheduler.page_size: {kind: int, min: 1, max: 2}": "study.yaml:21:"
    " tune.ranges.scheduler.page_size: is a part of scheduler: only one of them can be tuned",
    "scheduler.random_seed: {kind: int, min: 0, max: 9007199254740992}": "study.yaml:20:"
    " tune.ranges.scheduler.random_seed: has more values than can be counted: give it a step",
}


@pytest.mark.parametrize(("ranges", "line"), REFUSED.items())
def test_plan_bad_range_is_refused_in_one_line(planned, ranges, line):
    """File, line, key path, reason."""
    with pytest.raises(InputError) as caught:
        planned(ranges)
    assert str(caught.value) == line


GOOD = "replicas: {kind: int, min: 1, max: 3}"
SECTIONS = {
    ("tune.num_trials=0",): "--set tune.num_trials=0: must be at least 1, got 0",
    ("tune.objective=speed",): "--set tune.objective=speed: unknown value 'speed'"
    " (one of: goodput, cost)",
    ("tune.seeds=[]",): "--set tune.seeds=[]: must have 1 or more items, got 0",
    ("tune.seeds=[1, 2, 1]",): "--set tune.seeds=[1, 2, 1]: tune.seeds.2: 1 is given twice",
    ("tune.objective=cost",): "--set tune.objective=cost: tune: objective cost needs"
    " min_slo_attainment, the least share within the SLO, or constraints",
    ("tune.price_per_hour=2",): "--set tune.price_per_hour=2: tune: price_per_hour goes with"
    " objective cost",
    ("tune.ranges={}",): "--set tune.ranges={}: must have 1 or more items, got 0",
    ("tune.num_trails=3",): "--set tune.num_trails=3: unknown key (did you mean num_trials?)",
    ("tune=null",): "study.yaml:1: has no tune section",
    ("slo.ttft_ms=null",): "study.yaml:17: tune.objective: goodput needs an slo section with a"
    " limit",
}


@pytest.mark.parametrize(("overrides", "line"), SECTIONS.items())
def test_plan_bad_section_is_refused_in_one_line(planned, overrides, line):
    """What is sought, and how, is checked too."""
    with pytest.raises(InputError) as caught:
        planned(GOOD, *overrides)
    assert str(caught.value) == line


def test_plan_of_a_small_space_is_a_grid(planned):
    """If the trials are enough for all settings and the scenario's own beside them."""
    six = (
        "replicas: {kind: int, min: 1, max: 3}\nscheduler.page_size: {kind: choice, values: [1, 2]}"
    )
    assert (planned(six).is_grid, planned(six).num_trials) == (True, 6)
    assert not planned(six, "tune.num_trials=5").is_grid
    # The scenario's own page size is not among these.
    outside = planned(six.replace("[1, 2]", "[2, 4]"))
    assert (outside.is_grid, outside.num_trials) == (False, 6)
    endless = "scheduler.schedule_conservativeness: {kind: uniform, min: 0, max: 1}"
    assert not planned(endless).is_grid


def test_plan_leaves_combinations_to_the_trials(planned):
    """A value may be wrong beside the scenario's own and right beside others."""
    plan = planned(
        "scheduler.page_size: {kind: choice, values: [1, 48]}\n"
        "scheduler.chunked_prefill_size: {kind: choice, values: [480, 8192]}"
    )
    good = {"scheduler.page_size": 48, "scheduler.chunked_prefill_size": 480}
    assert [point.settings for point in plan.plan.with_seeds(good, plan.seeds)] == [
        good | {"seed": 0}
    ]
    with pytest.raises(InputError, match="8192 is not a multiple of page_size 48"):
        plan.plan.with_seeds(good | {"scheduler.chunked_prefill_size": 8192}, plan.seeds)


def test_plan_key_that_needs_another_one_is_taken_with_it(planned):
    """`t_ms` by itself has no kind; with the kind's range it has."""
    t_ms = "scheduler.fairness.t_ms: {kind: uniform, min: 0, max: 100}"
    with pytest.raises(InputError, match=r"scheduler\.fairness\.kind: is required$"):
        planned(t_ms)
    kind = "scheduler.fairness.kind: {kind: choice, values: [fairness_t]}"
    plan = planned(f"{kind}\n{t_ms}")
    assert plan.own == {"scheduler.fairness.kind": None, "scheduler.fairness.t_ms": None}
    assert not plan.own_is_inside
