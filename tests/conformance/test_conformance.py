"""SGLang 0.5.23's own decisions, step by step, on cases made by running its scheduler classes."""

from pathlib import Path

import pytest

from sim.engine.page_pool import PageCounts, PageIds
from sim.testing.conformance import find_cases, first_divergence, serve_case

CASES = find_cases(Path(__file__).parent / "cases")


@pytest.mark.parametrize("pool", [PageCounts, PageIds])
@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast-forward", "step by step"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_conformance_case_is_decided_as_by_sglang(case, fast_forward, pool):
    """Every field of every step and request agrees; otherwise the first difference is shown."""
    ours = serve_case(case, fast_forward=fast_forward, pool=pool)
    divergence = first_divergence(ours, list(case.read_lines("decisions")))
    assert divergence is None, f"\n{divergence}"


def test_conformance_all_cases_are_there():
    """Policies, eviction, pages, chunks, overlap, priorities, retraction, stages, aborts."""
    assert len(CASES) == 36


def test_conformance_changed_decision_is_found_and_shown():
    """The comparison does notice: one decode row fewer in step 100."""
    case = CASES[0]
    theirs = list(case.read_lines("decisions"))
    theirs[100]["n_decode"] -= 1
    divergence = first_divergence(serve_case(case), theirs)
    assert divergence is not None
    assert divergence.where == "step 100"
    assert divergence.fields == ("n_decode",)
    assert "*n_decode" in str(divergence)
