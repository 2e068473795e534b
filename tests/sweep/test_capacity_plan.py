"""The candidates of a plan section."""

from pathlib import Path

import pytest

from sim.scenario.load import load_scenario, load_scenario_text
from sim.sweep.capacity.candidates import in_words
from sim.sweep.capacity.judged_runs import JudgedRuns
from sim.sweep.capacity.plan import plan_capacity
from sim.workers.executor import TaskOutcome, TaskStatus

DISAGGREGATED = """\
plan: {min_slo_attainment: 0.9, max_replicas: 6, gpus: {any: {}}, dp: [1, 2], max_gpus: 8,
  disaggregated: {gpu_bandwidth_gb_s: 5, settings: {transfer.latency_s: 0.002,
    transfer.bytes_per_token: 1000, pools.decode.scheduler.max_running_requests: 7}}}
slo: {ttft_ms: 500, tpot_ms: 20}
"""
PLAN = Path(__file__).parents[2] / "scenarios" / "plan.yaml"


def planned(*overrides):
    return plan_capacity(load_scenario(PLAN, overrides))


def test_shipped_plan_tries_every_combination():
    """Three GPUs, three degrees, SGLang and two settings of vLLM."""
    plan = planned()
    assert len(plan.candidates) == 27
    assert in_words(plan.candidates[5]) == "h100_sxm, tp 2, vllm, max_num_batched_tokens 8192"
    assert {one.num_gpus for one in plan.candidates} == {1, 2, 4}
    assert plan.base_factor == pytest.approx(3)


def test_candidates_have_as_many_replicas_as_gpus_allow():
    """One that is too large for a single replica has that as its reason; so has a contradiction."""
    plan = planned("plan.max_gpus=6", "plan.tp=[2, 8]", "plan.max_replicas=2")
    assert {one.max_replicas for one in plan.candidates if one.reason is None} == {2}
    reasons = {one.reason for one in plan.candidates if one.degrees["tp"] == 8}
    assert reasons == {"a replica has 8 GPUs, more than max_gpus 6"}
    spread = planned("plan.moe_ep=[3]", "plan.tp=[4]").candidates[0]
    assert (
        spread.reason
        == "latency.moe_ep=3: latency: moe_ep 3 does not fit the 4 GPUs of tp 4 x dp 1"
    )


def test_listed_combinations_of_degrees_are_tried_as_they_are():
    """What one lacks is 1, whatever the scenario's own degree is."""
    plan = planned(
        "plan.tp=null", "latency.tp=4", "plan.gpus={h100_sxm: {}}", "plan.servers=[{}]",
        "plan.parallel=[{tp: 2}, {dp: 2, moe_ep: 2}, {tp: 8, pp: 2}]",
    )  # fmt: skip
    assert [(one.degrees, one.num_gpus) for one in plan.candidates] == [
        ({"tp": 2, "dp": 1, "pp": 1, "moe_ep": 1}, 2),
        ({"tp": 1, "dp": 2, "pp": 1, "moe_ep": 2}, 2),
        ({"tp": 8, "dp": 1, "pp": 2, "moe_ep": 1}, 16),
    ]


def test_servers_that_do_both_are_busier_than_their_parts(base_text):
    """Prefill steps take a part of the limit on TPOT; ranks wait for each other's, too."""
    text = base_text + DISAGGREGATED.replace("tpot_ms: 20", "tpot_ms: 6")
    plan = plan_capacity(
        load_scenario_text(
            text, ["workload.num_requests=4000", "workload.output_tokens.value=80",
                   "scheduler.max_total_tokens=100000"]
        )
    )  # fmt: skip
    one, two = (plan.server_loads.of(each) for each in plan.candidates[:2])
    # Without a limit that binds they would be the sum.
    assert one.both > 1.1 * (one.prefill + one.decode)
    assert two.prefill == pytest.approx(one.prefill / 2)
    assert two.both > one.both / 2


def test_settings_of_a_deployment_scale_the_traffic():
    """Replicas and rate are settings like all others."""
    plan = planned()
    settings = plan.settings(plan.candidates[0], (4,), load=1.5)
    assert settings["replicas"] == 4
    assert settings["workload.arrivals.rate_rps"] == pytest.approx(45)


def test_disaggregated_servers_are_all_pairs_of_degrees(base_text):
    """The smaller server's network limits a transfer, and each pool has its own degrees."""
    plan = plan_capacity(load_scenario_text(base_text + DISAGGREGATED))
    together, split = plan.candidates[:2], plan.candidates[2:]
    assert [one.decoders for one in together] == [None, None]
    degrees = [(one.degrees["dp"], one.decoders.degrees["dp"]) for one in split]
    assert degrees == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert [one.number for one in plan.candidates] == list(range(6))
    assert [one.gpus((2, 3)) for one in split] == [5, 8, 7, 10]
    pools = plan.plan.vary(plan.settings(split[3], (1, 2))).pools
    assert {name: one.scenario.replicas for name, one in pools.items()} == {
        "prefill": 1, "decode": 2
    }  # fmt: skip
    assert pools["decode"].scenario.scheduler.max_running_requests == 7
    assert pools["prefill"].scenario.scheduler.max_running_requests != 7
    settings = plan.settings(split[1], (1, 1))
    assert settings["transfer"] == {"bandwidth_gb_s": 5.0}
    assert in_words(split[1]) == "any, prefill tp 1, decode dp 2, sglang"


def test_loads_are_the_time_that_the_traffic_takes(base_text):
    """By hand: the formula of the latency, 10 requests a second of 100 and 4 tokens."""
    plan = plan_capacity(
        load_scenario_text(base_text + DISAGGREGATED, ["workload.num_requests=4000"])
    )
    latency = plan.plan.base.scenario.latency
    one = plan.candidates[2]
    prompts = 8192 // 100
    prefill_s = latency.step_s / prompts + 100 * latency.per_prefill_token_s
    assert one.decoders.loads[0] == pytest.approx(10 * prefill_s, rel=0.1)
    rows_s = latency.per_decode_request_s + latency.per_context_token_s * 102
    rows = min(4096 // 104, int((0.02 - latency.step_s) / rows_s) if rows_s else 10**9)
    decode_s = 4 * (latency.step_s + rows * rows_s) / rows
    assert one.decoders.loads[1] == pytest.approx(10 * decode_s, rel=0.1)


@pytest.mark.parametrize(
    ("judged_by", "attains"), [("simulated", True), ("expected", True), ("upper_end", False)]
)
def test_a_deployment_is_judged_by_the_latencies_that_the_plan_names(judged_by, attains):
    """Without an interval: by those simulated, as of the second seed."""
    interval = {"slo_attainment": {"low": 0.5, "expected": 0.9, "high": 1.0}}
    results = [
        {"slo_attainment": 0.96, "confidence": interval},
        {"slo_attainment": 0.98, "confidence": {}},
    ]
    runs = JudgedRuns(tuple(TaskOutcome("", TaskStatus.DONE, one) for one in results))
    section = planned("plan.min_slo_attainment=0.94", f"plan.judged_by={judged_by}").section
    assert runs.attains(section) is attains
    assert runs.attainments("upper_end") == [0.5, 0.98]
    assert runs.is_as_simulated(judged_by) is (judged_by == "simulated")
