"""SGLang 0.5.23's own decisions with speculative decoding, on cases made as the others."""

from pathlib import Path

import pytest

from sim.testing.conformance import find_cases, first_divergence, serve_case

CASES = find_cases(Path(__file__).parent / "draft_cases")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_with_drafts_is_decided_as_by_sglang(case):
    """Every field of every step and request agrees; otherwise the first difference is shown."""
    divergence = first_divergence(serve_case(case), list(case.read_lines("decisions")))
    assert divergence is None, f"\n{divergence}"


def test_cases_with_drafts_are_all_there():
    """Every algorithm, one to five drafts, pages from 1 to 32, overlap, mixing, retraction."""
    assert len(CASES) == 9


def test_another_number_of_drafts_is_found():
    """The comparison looks at the drafts of each row, too."""
    theirs = list(CASES[0].read_lines("decisions"))
    step = next(line for line in theirs if line.get("drafts"))
    step["drafts"][0] -= 1
    divergence = first_divergence(serve_case(CASES[0]), theirs)
    assert divergence is not None
    assert divergence.fields == ("drafts",)
