"""SGLang 0.5.23's own decisions, step by step, on cases made by running its scheduler classes."""

from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.engine.page_pool import PageCounts, PageIds
from tests.support.conformance import (
    case_until_error,
    find_cases,
    first_divergence,
    serve_case,
)

FOLDER = Path(__file__).parent
PLAIN, DRAFTS, HOST, STATES, WINDOWS, STAGES, MEMORY, RANKS, STORAGE = (
    find_cases(FOLDER / f"{name}cases")
    for name in (
        "",
        "draft_",
        "host_",
        "state_",
        "window_",
        "stage_",
        "memory_",
        "rank_",
        "storage_",
    )
)


def ways():
    """Each case with fast-forward and step by step; plain ones with page numbers, too.

    Page numbers and fast-forward are combined in long runs.
    """
    kinds = (PLAIN, DRAFTS, HOST, STATES, WINDOWS, STAGES, MEMORY, RANKS, STORAGE)
    for case in [case for kind in kinds for case in kind]:
        name = f"{case.folder.name}-{case.name}"
        for fast_forward in (True, False):
            way = "fast-forward" if fast_forward else "step by step"
            plain = case in PLAIN
            pool = PageIds if plain and not fast_forward else PageCounts
            yield pytest.param(case, fast_forward, pool, id=f"{name}-{way}")
            if plain:
                other = PageIds if fast_forward else PageCounts
                marks = pytest.mark.long
                yield pytest.param(case, fast_forward, other, id=f"{name}-{way}-long", marks=marks)


@pytest.mark.parametrize(("case", "fast_forward", "pool"), list(ways()))
def test_conformance_case_is_decided_as_by_sglang(case, fast_forward, pool):
    """Every field of every step and request agrees; otherwise the first difference is shown.

    With host memory, also what is loaded and how full it is; with drafts, those of each row.
    """
    ours = serve_case(case, fast_forward=fast_forward, pool=pool)
    divergence = first_divergence(ours, list(case.read_lines("decisions")))
    assert divergence is None, f"\n{divergence}"


@pytest.mark.parametrize("case", find_cases(FOLDER / "ended_cases"), ids=lambda case: case.name)
def test_run_ends_where_sglang_does(case):
    """All steps agree until SGLang ends with an error, and the run ends with a line that says why.

    Host memory is full under write-back, because slow storage still writes what it has.
    """
    with pytest.raises(InputError, match="ends here for want of memory"):
        serve_case(case)
    ours, theirs = case_until_error(case), list(case.read_lines("decisions"))
    steps = [line for line in theirs if line["kind"] == "step"]
    assert theirs[-1]["error"].startswith("RuntimeError: Out of memory")
    assert len(steps) - 1 <= len(ours) <= len(steps)  # a step may run when the error comes
    divergence = first_divergence(ours, steps[: len(ours)])
    assert divergence is None, f"\n{divergence}"


def test_conformance_all_cases_are_there():
    """Those of `cases`: policies, eviction, pages, chunks, overlap, priorities, stages, aborts.

    With drafts: every algorithm, one to five drafts. With windows: pages of 1 to 64, chunks, no
    cache. All of these: overlap, mixing, retraction. Stages: with windows, states, host memory and
    storage. Memory: host memory, windows and states, each with each, all together, with drafts, and
    idle while copies are under way. Ranks: with windows and states, host memory, the prefill
    delayer, drafts. Storage: every prefetch policy and write policy, failures, lookups after a
    miss, ranks, windows and states, with drafts, too.
    """
    kept = (PLAIN, DRAFTS, HOST, STATES, WINDOWS, STAGES, MEMORY, RANKS, STORAGE)
    assert [len(cases) for cases in kept] == [36, 12, 6, 6, 6, 7, 11, 9, 15]


def test_conformance_changed_decision_is_found_and_shown():
    """The comparison does notice: one decode row, or one draft, fewer in a step."""
    for case, name in ((PLAIN[0], "n_decode"), (DRAFTS[0], "drafts")):
        theirs = list(case.read_lines("decisions"))
        number = next(i for i, line in enumerate(theirs) if i >= 50 and line.get(name))
        if name == "drafts":
            theirs[number]["drafts"][0] -= 1
        else:
            theirs[number]["n_decode"] -= 1
        divergence = first_divergence(serve_case(case), theirs)
        assert divergence is not None
        assert (divergence.where, divergence.fields) == (f"step {number}", (name,))
        assert f"*{name}" in str(divergence)


def test_storage_cases_cover_every_policy():
    """Prefetch policies, write policies, failures, a store that is full."""
    configs = [case.config() for case in STORAGE]
    for key in ("hicache_storage_prefetch_policy", "hicache_write_policy"):
        assert len({config[key] for config in configs}) == 3
    for key in ("failed_read_share", "failed_write_share", "capacity_pages"):
        assert any(config["store"][key] for config in configs)


def test_host_cases_cover_every_policy_and_load():
    """Each write policy, with and without overlap; every case loads."""
    configs = [case.config() for case in HOST]
    policies = {(config["hicache_write_policy"], config["enable_overlap"]) for config in configs}
    assert len(policies) == 6
    assert all(any(step.get("loaded") for step in case.read_lines("decisions")) for case in HOST)


def test_memory_cases_with_host_memory_load():
    """In each, some prompts are found there."""
    with_host = [case for case in MEMORY if "copy_s_per_token" in case.config()]
    assert len(with_host) == 8
    for case in with_host:
        assert any(step.get("loaded") for step in case.read_lines("decisions"))


def test_state_cases_find_prefixes_and_run_out_of_states():
    """In each some prompts are found, and in some no state is free at times."""
    fewest = []
    for case in STATES:
        lines = list(case.read_lines("decisions"))
        assert any(line.get("cached_at_admit") for line in lines if line["kind"] == "req")
        fewest.append(min(line["states_free"] for line in lines if line["kind"] == "step"))
    assert fewest.count(0) >= 3


def test_rank_cases_decode_beside_prefills_without_drafts_alone():
    """Without drafts some ranks decode while others prefill; with drafts none does, ever."""
    for case in RANKS:
        modes = {}
        for line in case.read_lines("decisions"):
            if line["kind"] == "step":
                modes.setdefault(line["step"], set()).add(line["mode"])
        beside = any("decode" in each and len(each) > 1 for each in modes.values())
        assert beside != bool(case.config().get("speculation")), case.name


def test_rank_cases_delay_and_retract():
    """Some have the prefill delayer, with drafts, too; in some requests are retracted."""
    delayed = [case.config() for case in RANKS if case.config()["prefill_delayer"]]
    assert {bool(config.get("speculation")) for config in delayed} == {True, False}
    lines = [line for case in RANKS for line in case.read_lines("decisions")]
    assert any(line["retractions"] for line in lines if line["kind"] == "req")
