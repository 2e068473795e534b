"""vLLM 0.19.0's own decisions, step by step, on cases made by running its scheduler classes."""

from pathlib import Path

import pytest

from sim.testing.vllm_conformance import find_vllm_cases, first_vllm_divergence, serve_vllm_case

CASES = find_vllm_cases(Path(__file__).parent / "vllm_cases")


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast-forward", "step by step"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
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
