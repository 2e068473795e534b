"""The cases that vLLM decided: what they cover, and that a comparison finds differences."""

import copy
from pathlib import Path

import pytest

from tests.support.vllm_conformance import (
    find_vllm_cases,
    first_vllm_divergence,
    read_vllm_case,
    vllm_steps,
)

FOLDER = Path(__file__).parent / "vllm_cases"
CASES = find_vllm_cases(FOLDER)


def our_log_of(case):
    """The decision log of a server that decides as vLLM did."""
    steps = [
        step | {"preempted": [["x", [rid]] for rid in step["preempted"]]}
        for step in vllm_steps(case)
    ]
    return copy.deepcopy(steps + [line for line in case.decisions if line["kind"] == "req"])


def test_vllm_cases_all_are_there():
    """Chunks, thresholds, preemption, prefix cache, priorities, async scheduling, pipelines."""
    for version, num_drafts, num_groups, num_offloading in (
        ("0.19.0", 9, 8, 5),
        ("0.33.0", 19, 26, 22),
    ):
        cases = [case for case in CASES if case.config["version"] == version]
        assert sum("speculation" in case.config for case in cases) == num_drafts
        assert sum("kv_cache_groups" in case.config for case in cases) == num_groups
        assert sum("offload" in case.config for case in cases) == num_offloading
        assert len(cases) >= 30 + num_groups
        assert sum("stages" in case.config for case in cases) >= 2
        assert sum(case.config["async_scheduling"] for case in cases) >= 6
        assert sum(case.config["policy"] == "priority" for case in cases) >= 3


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_vllm_cases_every_request_is_over_and_no_token_is_lost(case):
    """A request's rows cover its prompt and all it generated but the last token."""
    rows = {row["rid"]: row for row in case.workload}
    prompts = {row["rid"]: sum(num for _, num in row["segments"]) for row in case.workload}
    # With states, the last token of a prompt is left to the decode server.
    has_states = any(each["kind"] == "mamba" for each in case.config.get("kv_cache_groups", ()))
    num_left = int(has_states and case.config.get("role") == "prefill")
    computed = dict.fromkeys(prompts, 0)
    for line in case.decisions:
        for rid, num_before, num_new in line.get("scheduled", ()):
            computed[rid] = max(computed[rid], num_before + num_new)
    requests = [line for line in case.decisions if line["kind"] == "req"]
    assert [line["rid"] for line in requests] == list(prompts)
    for line in requests:
        if line["status"] == "rejected":
            limited = "max_num_queued_reqs" in case.config
            assert limited or prompts[line["rid"]] >= case.config["max_model_len"]
        elif line["status"] == "aborted":
            assert "gives_up_after" in rows[line["rid"]]
            assert line["finish_ns"] is None
        else:
            assert line["status"] == "finished"
            num_needed = prompts[line["rid"]] - num_left + line["output_tokens"] - 1
            assert computed[line["rid"]] >= num_needed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_vllm_cases_step_stays_within_its_limits(case):
    """Budget, slots, threshold, blocks."""
    config = case.config
    most = config["long_prefill_token_threshold"]
    if not most or config["version"] == "0.33.0":
        # There the threshold is not for every request.
        most = config["max_num_batched_tokens"]
    for step in case.decisions:
        if step["kind"] == "step":
            new = [num_new for _, _, num_new in step["scheduled"]]
            assert sum(new) <= config["max_num_batched_tokens"]
            assert max(new) <= most
            assert len(step["running"]) <= config["max_num_seqs"]
            assert 0 <= step["free_blocks"] < config["num_gpu_blocks"]


def test_vllm_cases_equal_decisions_do_not_diverge():
    """Whatever vLLM's log says, a log of ours that says the same agrees."""
    for case in CASES:
        assert first_vllm_divergence(our_log_of(case), case) is None


def test_vllm_cases_changed_decision_is_found_and_shown():
    """One token less in a prefill row of step 3."""
    case = read_vllm_case(FOLDER / "0.19.0" / "chunked_prefill.json.gz")
    ours = our_log_of(case)
    ours[3]["prefill"][0][2] -= 1
    divergence = first_vllm_divergence(ours, case)
    assert divergence is not None
    assert (divergence.where, divergence.fields) == ("step 3", ("prefill",))
    assert "*prefill" in str(divergence)


def test_vllm_cases_missing_step_and_changed_result_are_found():
    """A log that ends early; a request that finishes a nanosecond later."""
    case = read_vllm_case(FOLDER / "0.33.0" / "priority.json.gz")
    ours = our_log_of(case)
    steps = [line for line in ours if line["kind"] == "step"]
    divergence = first_vllm_divergence([*steps[:-1], *ours[len(steps) :]], case)
    assert divergence is not None
    assert divergence.fields == ("number of steps",)
    ours[-1]["finish_ns"] += 1
    divergence = first_vllm_divergence(ours, case)
    assert divergence is not None
    assert (divergence.where, divergence.fields) == ("request r29", ("finish_ns",))
