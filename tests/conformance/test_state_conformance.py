"""SGLang 0.5.23's own decisions for models with state-space layers, on cases made as the others."""

from pathlib import Path

import pytest

from sim.testing.conformance import find_cases, first_divergence, serve_case

CASES = find_cases(Path(__file__).parent / "state_cases")


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast-forward", "step by step"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_state_case_is_decided_as_by_sglang(case, fast_forward):
    """Every field of every step and request agrees; otherwise the first difference is shown."""
    ours = serve_case(case, fast_forward=fast_forward)
    divergence = first_divergence(ours, list(case.read_lines("decisions")))
    assert divergence is None, f"\n{divergence}"


def test_state_cases_find_prefixes_and_run_out_of_states():
    """Six cases; in each some prompts are found, and in some no state is free at times."""
    fewest = []
    for case in CASES:
        lines = list(case.read_lines("decisions"))
        assert any(line.get("cached_at_admit") for line in lines if line["kind"] == "req")
        fewest.append(min(line["states_free"] for line in lines if line["kind"] == "step"))
    assert len(fewest) == 6
    assert fewest.count(0) >= 3
