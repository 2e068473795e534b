"""vLLM's own decisions, step by step, on cases made by running its scheduler classes."""

from dataclasses import replace
from pathlib import Path

import pytest

from sim.des.run import RunOptions
from sim.vllm.version_rules import NEWEST, VERSIONS
from tests.support.vllm_conformance import (
    find_vllm_cases,
    first_vllm_divergence,
    read_vllm_case,
    serve_vllm_case,
    vllm_scenario_of,
)
from tests.support.vllm_handover import serve_handover

FOLDER = Path(__file__).parent / "vllm_cases"
CASES = find_vllm_cases(FOLDER)
# A case in which each rule of the newest version matters.
CASE_OF_RULE = {
    "reuses_uncached_first": "uncached_first",
    "goes_on_after_self_preemption": "priority_goes_on",
    "steps_back_for_any_victim": "async_priority_preemption",
    "spares_lone_request": "lone_request",
    "passes_over_victims_in_flight": "pipeline_of_four_preemption",
    "fills_batch_queue": "pipeline_of_four_preemption",
    "keeps_blocks_in_flight": "groups_async",
    "caps_admission": "groups_window",
    "has_retention_interval": "groups_window",
    "retires_all_states": "groups_checkpoints",
    "stops_at_junctions": "groups_states",
    "fences_blocks": "decode_server_fences",
    "reserves_for_loads": "decode_server_lost",
    "drops_victims_tokens": "prefill_server_victims",
    "ends_stores_by_copy": "offload_ranks",
    "waits_for_stores": "offload",
    "offers_by_admission": "offload_waits",
    "counts_offers": "offload_arc",
    "ranks_by_request": "offload",
    "loads_behind_steps": "offload",
}


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast-forward", "step by step"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_vllm_conformance_case_is_decided_as_by_vllm(case, fast_forward):
    """Every field of every step and request agrees; otherwise the first difference is shown."""
    ours = serve_vllm_case(case, fast_forward=fast_forward, check=not fast_forward)
    divergence = first_vllm_divergence(ours, case)
    assert divergence is None, f"\n{divergence}"


def test_vllm_conformance_changed_decision_is_found_and_shown():
    """The comparison does notice: one free block fewer in step 20."""
    case = CASES[0]
    ours = serve_vllm_case(case)
    ours[20]["free"] -= case.config["block_size"]
    divergence = first_vllm_divergence(ours, case)
    assert divergence is not None
    assert (divergence.where, divergence.fields) == ("step 20", ("free",))
    assert "*free" in str(divergence)


def test_vllm_conformance_victims_of_a_prefill_server_are_decided_the_same_row_by_row():
    """Rows that are counted one by one take another way; no setting of 0.19.0 asks for it."""
    case = read_vllm_case(FOLDER / "0.19.0" / "prefill_server_ends_victims.json.gz")
    scenario, options = vllm_scenario_of(case.config), RunOptions()
    ours = serve_handover(scenario, case.workload, "prefill", options, in_lockstep=False)
    assert first_vllm_divergence(ours, case) is None


@pytest.mark.parametrize("rule", CASE_OF_RULE)
def test_vllm_conformance_each_rule_of_the_newest_version_has_its_case(rule, monkeypatch):
    """Without the rule the case is decided otherwise."""
    case = read_vllm_case(FOLDER / NEWEST / f"{CASE_OF_RULE[rule]}.json.gz")
    monkeypatch.setitem(VERSIONS, NEWEST, replace(VERSIONS[NEWEST], **{rule: False}))
    assert first_vllm_divergence(serve_vllm_case(case), case) is not None
