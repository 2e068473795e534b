"""SGLang 0.5.23's own decisions with host memory below its tree, on cases made as the others."""

from pathlib import Path

import pytest

from sim.testing.conformance import find_cases, first_divergence, serve_case

CASES = find_cases(Path(__file__).parent / "host_cases")


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast-forward", "step by step"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_host_case_is_decided_as_by_sglang(case, fast_forward):
    """Every field of every step agrees, also what is loaded and how full host memory is."""
    ours = serve_case(case, fast_forward=fast_forward)
    divergence = first_divergence(ours, list(case.read_lines("decisions")))
    assert divergence is None, f"\n{divergence}"


def test_host_cases_cover_every_policy_and_load():
    """Each write policy, with and without overlap; every case loads."""
    policies = [
        (case.config()["hicache_write_policy"], case.config()["enable_overlap"]) for case in CASES
    ]
    assert len(set(policies)) == len(policies) == 6
    assert all(any(step.get("loaded") for step in case.read_lines("decisions")) for case in CASES)
