"""The candidates of a plan section."""

from pathlib import Path

import pytest

from sim.scenario.load import load_scenario
from sim.sweep.candidates import in_words
from sim.sweep.capacity_plan import plan_capacity

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


def test_settings_of_a_deployment_scale_the_traffic():
    """Replicas and rate are settings like all others."""
    plan = planned()
    settings = plan.settings(plan.candidates[0], 4, headroom=0.5)
    assert settings["replicas"] == 4
    assert settings["workload.arrivals.rate_rps"] == pytest.approx(45)
