"""SGLang 0.5.23's own decisions for models with sliding windows, on cases made as the others."""

from pathlib import Path

import pytest

from sim.testing.conformance import find_cases, first_divergence, serve_case

CASES = find_cases(Path(__file__).parent / "window_cases")


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast-forward", "step by step"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_window_case_is_decided_as_by_sglang(case, fast_forward):
    """Every field of every step and request agrees; otherwise the first difference is shown."""
    ours = serve_case(case, fast_forward=fast_forward)
    divergence = first_divergence(ours, list(case.read_lines("decisions")))
    assert divergence is None, f"\n{divergence}"


def test_window_cases_are_all_there():
    """Pages of 1, 4, 16, 32 and 64, overlap, mixing, retraction, no cache, chunks, evictions."""
    assert len(CASES) == 6
