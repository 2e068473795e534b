"""Sweep sections give every combination once, in the order written, and all are checked."""

import json
from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sim.sweep.plan
from sim.core.errors import InputError
from sim.scenario.load import load_scenario_text, vary
from sim.scenario.overrides import Change
from sim.sweep.plan import canonical, draw_settings, plan_sweep

VALUES = {
    "scheduler.schedule_policy": st.sampled_from(["fcfs", "lpm", "lof", "hrrn"]),
    "scheduler.max_running_requests": st.integers(1, 100),
    "scheduler.prefill_max_requests": st.none() | st.integers(1, 100),
    "workload.arrivals.rate_rps": st.integers(1, 50) | st.floats(1, 50),
    "replicas": st.integers(1, 8),
}


def distinct(values):
    return st.lists(values, min_size=1, max_size=3, unique_by=canonical)


GRIDS = st.permutations(list(VALUES)).flatmap(
    lambda keys: st.integers(1, 3).flatmap(
        lambda size: st.fixed_dictionaries({key: distinct(VALUES[key]) for key in keys[:size]})
    )
)


@pytest.fixture(scope="session")
def planned(base_text):
    def plan(section):
        return plan_sweep(load_scenario_text(f"{base_text}sweep: {json.dumps(section)}\n"))

    return plan


@given(GRIDS, st.lists(st.integers(0, 9), unique=True, max_size=3), st.booleans())
def test_plan_grid_is_the_product_in_the_order_written(planned, grid, seeds, bare):
    """The last key varies fastest, seeds faster still; no point comes twice."""
    section = dict(grid) if bare else {"grid": grid}
    plan = planned(section | ({"seeds": seeds} if seeds else {}))
    axes = grid | ({"seed": seeds} if seeds else {})
    wanted = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    assert [dict(point.settings) for point in plan.points] == wanted
    assert len(plan.points) == prod(map(len, axes.values()))
    assert list(plan.keys) == list(axes)
    assert [point.number for point in plan.points] == list(range(len(wanted)))
    assert len({canonical(point.settings) for point in plan.points}) == len(plan.points)


@given(GRIDS)
def test_plan_point_is_the_scenario_with_its_values(planned, base_text, grid):
    """A point is what the same values written into the file would be."""
    plan = planned({"grid": grid})
    base = load_scenario_text(base_text)
    for point in plan.points:
        changes = [Change(key, value, "") for key, value in point.settings.items()]
        assert plan.vary(point.settings).scenario == vary(base, changes).scenario
        assert plan.vary(point.settings).scenario.sweep is None


def test_plan_content_hash_does_not_depend_on_the_sweep(with_sweep, base_text):
    """A grid with more values has the points of the smaller one."""
    few = plan_sweep(with_sweep("replicas: [1, 2]")).points
    more = plan_sweep(with_sweep("replicas: [1, 2, 3]")).points
    assert [point.content_hash for point in few] == [point.content_hash for point in more[:2]]
    assert few[0].content_hash == load_scenario_text(base_text).content_hash


def test_plan_list_gives_settings_one_by_one(with_sweep):
    """Each mapping is a setting; keys that a setting lacks keep the scenario's value."""
    section = "list:\n  - {replicas: 2}\n  - {replicas: 3, scheduler.page_size: 2}\nseeds: [1, 2]"
    plan = plan_sweep(with_sweep(section))
    assert [dict(point.settings) for point in plan.points] == [
        {"replicas": 2, "seed": 1},
        {"replicas": 2, "seed": 2},
        {"replicas": 3, "scheduler.page_size": 2, "seed": 1},
        {"replicas": 3, "scheduler.page_size": 2, "seed": 2},
    ]
    assert plan.keys == ("replicas", "scheduler.page_size", "seed")


DRAWS = """\
random:
  num_points: 200
  seed: 5
  draw:
    workload.arrivals.rate_rps: {kind: uniform, min: 5, max: 6}
    scheduler.max_running_requests: {kind: int, min: 3, max: 5}
    scheduler.schedule_conservativeness: {kind: loguniform, min: 0.01, max: 1}
    scheduler.prefill_max_requests: {kind: choice, values: [null, 4]}"""


def test_plan_draws_stay_in_their_ranges_and_reach_them(with_sweep):
    """Every kind of draw: bounds held, all whole numbers and choices seen, factors alike."""
    section = with_sweep(DRAWS).scenario.sweep.random
    drawn = draw_settings(section)
    rates, slots, conservative, limits = ([values[key] for values in drawn] for key in section.draw)
    assert all(5 <= rate <= 6 for rate in rates)
    assert set(slots) == {3, 4, 5}
    assert all(0.01 <= value <= 1 for value in conservative)
    assert 70 <= sum(value < 0.1 for value in conservative) <= 130
    assert set(limits) == {None, 4}
    assert len(plan_sweep(with_sweep(DRAWS)).points) == 200


def test_plan_draws_of_a_key_depend_on_nothing_else(with_sweep):
    """More points, or another key drawn too, leave the first values as they are."""
    few = draw_settings(with_sweep(DRAWS, "sweep.random.num_points=3").scenario.sweep.random)
    many = draw_settings(with_sweep(DRAWS).scenario.sweep.random)
    one = "random:\n  num_points: 3\n  seed: 5\n  draw:\n    " + DRAWS.splitlines()[4].strip()
    alone = draw_settings(with_sweep(one).scenario.sweep.random)
    assert few == many[:3]
    key = "workload.arrivals.rate_rps"
    assert [values[key] for values in alone] == [values[key] for values in few]
    other = draw_settings(with_sweep(DRAWS, "sweep.random.seed=6").scenario.sweep.random)
    assert other != many


REFUSED = {
    "replicas: [1, 0]": "study.yaml:16: sweep: replicas=0: must be at least 1, got 0"
    " (point 2 of 2: replicas=0)",
    "scheduler.page_sizes: [1]": "study.yaml:16: sweep: scheduler.page_sizes=1: unknown key"
    " (did you mean page_size?) (point 1 of 1: scheduler.page_sizes=1)",
    "replicas: []": "study.yaml:16: sweep.replicas: must have 1 or more items, got 0",
    "replicas: 2": "study.yaml:16: sweep.replicas: must be a list, got 2",
    "grid: {}": "study.yaml:16: sweep.grid: must have 1 or more items, got 0",
    "replicas: [2, 2]": "study.yaml:16: sweep.replicas.1: 2 is given twice",
    "seeds: [4, 4]": "study.yaml:16: sweep.seeds.1: 4 is given twice",
    "seed: [1, 2]": "study.yaml:16: sweep.seed: give the seeds as sweep.seeds",
    "sweep.seeds: [1]": "study.yaml:16: sweep.sweep.seeds: cannot be swept",
    "replicas: [1]\ngrid: {replicas: [2]}": "study.yaml:16: sweep.replicas: is swept twice",
    "scheduler.page_size: [1]\nscheduler: [{max_total_tokens: 64}]": "study.yaml:17:"
    " sweep.scheduler: would overwrite scheduler.page_size: put it before scheduler.page_size",
    "workload.num_requests.x: [1]": "study.yaml:16: sweep: workload.num_requests.x=1:"
    " workload.num_requests is 3: no key can be set in it"
    " (point 1 of 1: workload.num_requests.x=1)",
    "random: {num_points: 1, draw: {replicas: {kind: int, min: 2, max: 1}}}": "study.yaml:16:"
    " sweep.random.draw.replicas: max must be at least min, got 2 to 1",
}


@pytest.mark.parametrize(("section", "line"), REFUSED.items())
def test_plan_bad_sweep_is_refused_in_one_line(with_sweep, section, line):
    """File, line, key path, reason, and which point it is."""
    with pytest.raises(InputError) as caught:
        plan_sweep(with_sweep(section))
    assert str(caught.value) == line


def test_plan_scenario_without_a_sweep_is_refused(base_text):
    """There is nothing to do, and that is said."""
    with pytest.raises(InputError, match=r"^study.yaml:1: has no sweep section$"):
        plan_sweep(load_scenario_text(base_text, name="study.yaml"))


def test_plan_with_too_many_points_is_refused_before_it_is_made(with_sweep):
    """A slip in a grid must not fill the memory."""
    many = ", ".join(map(str, range(1, 400)))
    section = f"scheduler.max_running_requests: [{many}]\nscheduler.retract_decode_steps: [{many}]"
    with pytest.raises(InputError, match=r"sweep: has 159,201 points, above 100,000$"):
        plan_sweep(with_sweep(section))


def test_points_that_differ_in_their_seed_alone_are_checked_once(planned, monkeypatch):
    """Their hashes are those of the whole scenarios all the same."""
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return vary(*arguments)

    monkeypatch.setattr(sim.sweep.plan, "vary", counted)
    plan = planned({"replicas": [1, 2], "seeds": [0, 5, 7]})
    assert len(calls) == 2
    assert len(plan.points) == 6
    for point in plan.points:
        assert point.content_hash == plan.vary(point.settings).content_hash


def test_a_long_check_is_announced(planned, monkeypatch, capsys):
    monkeypatch.setattr(sim.sweep.plan, "_FEW_POINTS", 2)
    monkeypatch.setattr(sim.sweep.plan, "_LONG_S", 0)
    planned({"replicas": [1, 2, 3, 4, 5]})
    assert "checks 3 more points, which takes about" in capsys.readouterr().err
