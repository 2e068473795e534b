"""SGLang 0.5.23's own decisions on a prefill server alone and on a decode server alone.

The other server is a script (`tests.support.scripted_partner`): when it is ready for a request, how
long a transfer takes, which transfers fail.
"""

from pathlib import Path

import pytest

from tests.support.conformance import find_cases
from tests.support.one_side import first_difference_of_side, serve_side

FOLDER = Path(__file__).parent
PREFILL, DECODE = (find_cases(FOLDER / name) for name in ("prefill_cases", "decode_cases"))


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast-forward", "step by step"])
@pytest.mark.parametrize("case", [*PREFILL, *DECODE], ids=lambda case: case.name)
def test_one_side_decides_as_sglang(case, fast_forward):
    """Steps, requests, what is sent when, and when room is made; else the first difference."""
    ours = serve_side(case, fast_forward=fast_forward)
    divergence = first_difference_of_side(ours, list(case.read_lines("decisions")))
    assert divergence is None, f"\n{divergence}"


@pytest.mark.parametrize(("case", "name"), [(PREFILL[0], "sent"), (DECODE[0], "room")])
def test_changed_message_to_the_other_side_is_found(case, name):
    """The comparison notices a part that is sent, or room that is made, a millisecond later."""
    theirs = list(case.read_lines("decisions"))
    is_told = [line["kind"] == "req" and line["status"] == "finished" for line in theirs]
    line = theirs[is_told.index(True)]
    told = line["room"] if name == "room" else line["sent"][-1]
    told[0] += 1e-3
    divergence = first_difference_of_side(serve_side(case), theirs)
    assert divergence is not None
    assert (divergence.where, divergence.fields) == (f"request {line['rid']}", (name,))


def test_cases_of_both_sides_draft():
    """Drafts on prefill and on decode servers: pairs and n-grams, a cache, failures, retraction."""
    for cases in (PREFILL, DECODE):
        drafting = [case for case in cases if case.config().get("speculation")]
        algorithms = {case.config()["speculation"]["algorithm"] for case in drafting}
        assert "NGRAM" in algorithms
        assert algorithms & {"EAGLE", "EAGLE3"}
        lines = [line for case in drafting for line in case.read_lines("decisions")]
        assert any(line.get("status") == "failed" for line in lines)
    assert any(line.get("drafts") for line in lines)
    assert any(line.get("retractions") for line in lines)
    assert not all(case.config()["disable_radix_cache"] for case in drafting)


def test_decode_cases_have_windows_and_states():
    """Both with and without a cache, drafts and retraction; prefixes found beside windows."""
    found = set()
    for case in DECODE:
        config, lines = case.config(), list(case.read_lines("decisions"))
        for key in ("sliding_window", "max_mamba_cache_size"):
            if config.get(key):
                found.add((key, "cache", not config["disable_radix_cache"]))
                found.add((key, "drafts", bool(config.get("speculation"))))
                retracts = any(line.get("retractions") for line in lines)
                found.add((key, "retracts", retracts))
                hits = any(line.get("room") and line["room"][1] for line in lines)
                found.add((key, "hits", hits))
    names = ("cache", "drafts", "retracts", "hits")
    for key in ("sliding_window", "max_mamba_cache_size"):
        assert all({(key, name, True), (key, name, False)} <= found for name in names), found


def test_decode_cases_load_from_host_memory():
    """Loads alone, with drafts and with states; under each way to copy; a prefix that is lost."""
    loading = [case for case in DECODE if case.config().get("copy_s_per_token")]
    found = set()
    for case in loading:
        config, lines = case.config(), list(case.read_lines("decisions"))
        assert any(line["loaded"] for line in lines if line["kind"] == "step"), case.name
        kinds = ("speculation", "max_mamba_cache_size", "enable_overlap")
        found |= {kind for kind in kinds if config.get(kind)}
        found.add(config["hicache_write_policy"])
        cannot_fail = {
            str(row["rid"])
            for row in case.read_lines("workload")
            if "fails_after" not in row["partner"] and "gives_up_after" not in row
        }
        lost = [line for line in lines if line.get("status") == "failed"]
        found |= {"lost" for line in lost if line["rid"] in cannot_fail}
    assert found == {
        "speculation", "max_mamba_cache_size", "enable_overlap", "write_through", "write_back",
        "write_through_selective", "lost",
    }  # fmt: skip


def test_decode_cases_fetch_from_storage():
    """Under each policy prompts are found, and some requests do not get all that was promised."""
    policies = set()
    for case in DECODE:
        config, lines = case.config(), list(case.read_lines("decisions"))
        if "store" in config:
            policies.add(config["hicache_storage_prefetch_policy"])
            assert any(line.get("room") and line["room"][1] for line in lines), case.name
            assert any(line.get("status") == "failed" for line in lines), case.name
    assert policies == {"best_effort", "wait_complete", "timeout"}


def test_prefill_cases_send_in_parts_and_fail():
    """Chunks, cached prefixes, transfers that fail and clients that give up, in each way."""
    lines = [line for case in PREFILL for line in case.read_lines("decisions")]
    requests = [line for line in lines if line["kind"] == "req"]
    assert {line["status"] for line in requests} >= {"finished", "failed", "aborted", "rejected"}
    assert any(len(line["sent"]) > 2 for line in requests)
    assert {case.config()["enable_overlap"] for case in PREFILL} == {True, False}


def test_decode_cases_retract_and_find_prefixes():
    """Retraction to host memory and back, cached prefixes, and answers of one token."""
    lines = [line for case in DECODE for line in case.read_lines("decisions")]
    requests = [line for line in lines if line["kind"] == "req"]
    assert sum(line["retractions"] for line in requests) >= 20
    assert any(line.get("resumed") for line in requests)
    # Host memory for retracted requests runs out: one of several is aborted instead.
    steps = [line for line in lines if line["kind"] == "step"]
    assert sum(bool(line["aborted"] and line["n_decode"]) for line in steps) >= 10
    assert any(line["room"] and line["room"][1] for line in requests)
    assert any(line.get("output_tokens") == 1 for line in requests)
    assert {case.config()["enable_overlap"] for case in DECODE} == {True, False}
