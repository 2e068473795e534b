"""vLLM 0.19.0's own decisions, step by step, on cases made by running its scheduler classes."""

from pathlib import Path

import pytest

from sim.testing.vllm_conformance import find_vllm_cases, first_vllm_divergence, serve_vllm_case

CASES = find_vllm_cases(Path(__file__).parent / "vllm_cases")


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast-forward", "step by step"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_vllm_conformance_case_is_decided_as_by_vllm(case, fast_forward):
    """Every field of every step and request agrees; otherwise the first difference is shown."""
    divergence = first_vllm_divergence(case, serve_vllm_case(case, fast_forward=fast_forward))
    assert divergence is None, f"\n{divergence}"
