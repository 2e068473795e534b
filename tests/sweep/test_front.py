"""Which of the deployments and loads that were tried no other beats."""

import pytest

from sim.scenario.load import load_scenario_text
from sim.sweep.capacity.front import TriedLoad, front_of, load_rows
from sim.sweep.capacity.judged_runs import JudgedRuns
from sim.sweep.capacity.plan import plan_capacity
from sim.workers.executor import TaskOutcome, TaskStatus

PLAN = """\
plan: {min_slo_attainment: 0.9, gpus: {any: {}}}
slo: {ttft_ms: 500}
"""


@pytest.fixture
def plan(base_text):
    return plan_capacity(load_scenario_text(base_text + PLAN))


@pytest.fixture
def tried(plan):
    """A load of two servers whose seeds had these TPOTs and throughputs."""

    def make(*runs, **more):
        results = [
            {"mean_tpot_ms": tpot, "output_throughput": output, "slo_attainment": 0.95, **more}
            for tpot, output in runs
        ]
        judged = JudgedRuns(tuple(TaskOutcome("", TaskStatus.DONE, one) for one in results))
        return TriedLoad(candidate=plan.candidates[0], size=(2,), load=1.5, judged=judged)

    return make


def test_front_has_what_no_other_beats(tried):
    """The most tokens/s for each user first."""
    fast, busy, beaten = tried((10, 100)), tried((50, 900)), tried((50, 800))
    equal = tried((20, 400))
    assert front_of([beaten, busy, equal, tried((25, 400)), fast]) == [fast, equal, busy]


def test_front_leaves_out_queues_that_grow_and_answers_of_one_token(tried):
    """Neither can be had for long, or at all."""
    steady = tried((10, 100))
    growing, without = tried((10, 999), saturated=True), tried((None, 500))
    assert front_of([growing, without, steady]) == [steady]


def test_row_names_deployment_and_load_and_has_both_intervals(plan, tried):
    """Of the seeds, and of real servers: a TPOT of 8 to 20 ms is 50 to 125 tokens/s."""
    confidence = {
        "mean_tpot_ms": {"low": 8.0, "high": 20.0},
        "output_throughput": {"low": 60.0, "high": 120.0},
    }
    one = tried((10, 100), (10, 104), (10, 102), confidence=confidence)
    [row] = load_rows(plan, [one])
    assert row["deployment"] == "any, tp 1, sglang"
    assert (row["servers"], row["num_gpus"], row["load"], row["load_unit"]) == (
        "2", 2, 15.0, "requests/s",
    )  # fmt: skip
    assert (row["tokens_per_user"], row["tokens_per_gpu"]) == (100, 51)
    assert row["tokens_per_gpu_half_width"] == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    assert (row["tokens_per_user_low"], row["tokens_per_user_high"]) == (50, 125)
    assert (row["tokens_per_gpu_low"], row["tokens_per_gpu_high"]) == (30, 60)
    assert row["on_front"]
    assert row["meets"]
    assert row["num_seeds"] == 3
