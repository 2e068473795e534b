"""Runs of a search that stop early: the answers are those of whole runs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.commands.running.points import run_contest_point, run_point
from sim.confidence.judged import is_as_simulated
from sim.metrics.early_stop import most_attainment
from sim.scenario.load import load_scenario, load_scenario_text
from sim.sweep.capacity.plan import plan_capacity
from sim.sweep.capacity.search import find_deployments
from sim.sweep.capacity.trials import TrialRuns
from sim.sweep.store import PointStore, StoredPoints
from sim.workers.executor import PointWork, Task, TaskStatus, TraceCache, run_task
from tests.support.serve import LINEAR_LATENCY

PLAN = Path(__file__).parents[2] / "scenarios" / "plan.yaml"
OPEN = """\
  kind: synthetic
  num_requests: 40
  arrivals: {kind: poisson, rate_rps: %s}
"""
CLOSED = """\
  kind: clients
  clients: %s
  requests_per_client: 5
  think_s: {kind: exponential, mean: 0.05}
"""
REST = """\
  prompt_tokens: {kind: uniform, min: 20, max: 900}
  output_tokens: {kind: uniform, min: 1, max: 30}
scheduler: {family: %s, %s: 4096, %s: 512}
replicas: %s
seed: %s
"""
FAMILIES = (
    ("sglang", "max_total_tokens", "context_length"),
    ("vllm", "num_gpu_blocks_override", "max_model_len"),
)


@st.composite
def loaded_scenarios(draw):
    """Short traffic; some requests are too long for the servers, some have no second token."""
    rate, clients = draw(st.sampled_from((20, 60, 200))), draw(st.integers(2, 12))
    traffic = draw(st.sampled_from((OPEN % rate, CLOSED % clients)))
    rest = REST % (
        *draw(st.sampled_from(FAMILIES)),
        draw(st.integers(1, 3)),
        draw(st.integers(0, 9)),
    )
    limits = draw(
        st.dictionaries(
            st.sampled_from(("ttft_ms", "tpot_ms", "e2e_latency_ms")),
            st.sampled_from((6, 15, 40, 100, 300)),
            min_size=1,
        )
    )
    text = f"name: study\n{LINEAR_LATENCY}workload:\n{traffic}{rest}slo: {limits}\n"
    return load_scenario_text(text.replace("'", ""))


def run(loaded, least=0.0, runner=run_point):
    outcome = run_task(Task("", PointWork(loaded, least)), runner, TraceCache())
    assert outcome.status in {TaskStatus.DONE, TaskStatus.STOPPED}, outcome.trace
    return outcome


@given(loaded_scenarios(), st.floats(0.01, 1.0))
def test_run_is_stopped_if_and_only_if_its_attainment_is_too_low(loaded, least):
    """What is known of a stopped run is true of the whole one; others are as without a limit."""
    whole, asked = run(loaded), run(loaded, least)
    attainment = whole.result["slo_attainment"]
    assert (asked.status is TaskStatus.STOPPED) == (attainment < least)
    if asked.status is TaskStatus.DONE:
        assert asked.result == whole.result
    else:
        assert attainment <= most_attainment(asked.result) < least
        assert asked.result["num_requests"] == whole.result["submitted"]
        assert asked.result["num_rejected"] <= whole.result["rejected"]
        assert asked.result["num_kept"] <= attainment * whole.result["submitted"] + 1e-9


def test_run_whose_metrics_are_of_a_window_is_never_stopped(with_sweep):
    """Which requests count is known at the end only. A contest's run stops as a plan's does."""
    late = with_sweep("seeds: [1]", "slo={ttft_ms: 0.001}", "warmup={requests: 1}")
    assert run(late, 1.0).status is TaskStatus.DONE
    loaded = with_sweep("seeds: [1]", "slo={ttft_ms: 0.001}")
    assert run(loaded, 0.5, run_contest_point).result["num_ended"] == 2


@pytest.mark.parametrize(
    ("overrides", "judged_by", "is_simulated"),
    [
        ((), "simulated", True),
        ((), "expected", True),
        ((), "upper_end", False),
        (("scheduler={family: vllm, version: 0.11.2}",), "expected", False),
        (("scheduler={family: vllm, version: 0.11.2}",), "simulated", True),
        (("latency.efficiency=0.9",), "upper_end", True),
    ],
)
def test_attainment_that_may_be_judged_by_other_latencies_stops_no_run(
    overrides, judged_by, is_simulated
):
    """vLLM 0.11.2 was measured with this model on this GPU, so something is expected of it."""
    assert is_as_simulated(load_scenario(PLAN, overrides), judged_by) is is_simulated


SEARCH = """\
slo: {ttft_ms: 60, tpot_ms: 12}
plan:
  min_slo_attainment: 0.9
  rate_rps: 120
  max_replicas: 4
  gpus:
    fast: {price_per_hour: 3, settings: {latency.step_s: 0.003}}
    slow: {price_per_hour: 2}
  servers: [{grid: {scheduler.max_running_requests: [2, 32]}}]
"""


def outcomes_of(judged):
    return [(one.status, one.result) for one in judged.outcomes]


def found_of(found):
    """What a search found of each candidate, without the metrics of what misses the SLO."""
    return [
        (one.candidate.number, one.verdict, one.size, one.load, one.headroom, one.is_headroom_open,
         outcomes_of(one.judged) if one.meets else None)
        for one in found.deployments
    ]  # fmt: skip


@pytest.mark.parametrize(
    "overrides",
    [
        ("plan.seeds=[1, 2, 3]",),
        ("plan.objective=load", "plan.max_gpus=3", "plan.seeds=[4, 5]"),
        ("slo={ttft_ms: 0.1}",),
    ],
)
def test_search_finds_the_same_whether_runs_are_stopped_or_not(
    overrides, tmp_path, inline, monkeypatch
):
    """And all metrics that are shown are those of whole runs."""
    text = f"name: study\n{LINEAR_LATENCY}workload:\n{OPEN % 20}{REST % (*FAMILIES[0], 1, 1)}"
    plan = plan_capacity(load_scenario_text(text + SEARCH, overrides))

    def search(folder):
        store = PointStore(tmp_path, folder)
        points = StoredPoints(store, inline, run_point, code=folder)
        return find_deployments(plan, points, lambda *_: None), points.num_run

    stopped, num_stopped = search("stops")
    monkeypatch.setattr(TrialRuns, "_stops", lambda *_: False)
    whole, num_whole = search("whole")
    assert found_of(stopped) == found_of(whole)
    assert any(not one.judged.is_whole for one in stopped.loads)
    assert num_stopped <= num_whole + 2 * len(plan.seeds)
    whole_first, first = whole.deployments[0], stopped.deployments[0]
    for ours, theirs in zip(first.fewer, whole_first.fewer, strict=True):
        assert (ours[0], outcomes_of(ours[1])) == (theirs[0], outcomes_of(theirs[1]))
    if first.more is not None:
        assert first.more[0] == whole_first.more[0]
        assert outcomes_of(first.more[1]) == outcomes_of(whole_first.more[1])
    loads = {(one.candidate.number, one.size, one.load): one.judged for one in whole.loads}
    assert len(loads) == len(stopped.loads)
    for one in stopped.loads:
        judged = loads[one.candidate.number, one.size, one.load]
        if one.judged.is_whole:
            num_seeds = len(one.judged.outcomes)
            assert outcomes_of(one.judged) == outcomes_of(judged)[:num_seeds]
        else:
            assert not judged.attains(plan.section)
