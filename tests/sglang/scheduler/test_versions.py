"""Rules in which SGLang's versions differ (docs/explanation/sglang.md, "Older versions")."""

import pytest

from sim.sglang.config import SchedulerConfig
from sim.sglang.scheduler.prefill.adder import Verdict
from sim.testing.contracts.policies import waiting_request
from sim.workload.workload import listed
from tests.support.serve import serve
from tests.support.workloads import scripted

CONTINUE, NO_TOKEN, OTHER = Verdict.CONTINUE, Verdict.NO_TOKEN, Verdict.OTHER
ALL = ("0.5.1", "0.5.9", "0.5.10", "0.5.23")


def steps_of(version, *requests, **settings):
    return serve(listed(list(requests)), SchedulerConfig(version=version, **settings)).steps


@pytest.mark.parametrize(("version", "num_decodes"), [("0.5.9", 5), ("0.5.23", 4)])
def test_last_token_in_flight(version, num_decodes):
    """Older versions decode once more while the last token is on its way, which keeps nothing."""
    steps = steps_of(version, scripted("a", (1, 100), output=5))
    assert sum(step["mode"] == "decode" for step in steps) == num_decodes
    assert steps[-1]["t_end_ns"] > steps[-2]["t_end_ns"]


def test_without_overlap_no_version_decodes_for_nothing():
    """Then the last token is known in time."""
    for version in ALL:
        request = scripted("a", (1, 100), output=5)
        steps = steps_of(version, request, disable_overlap_schedule=True)
        assert sum(step["mode"] == "decode" for step in steps) == 4


@pytest.mark.parametrize(("version", "wait_steps"), [("0.5.9", 1), ("0.5.23", 0)])
def test_finished_row_keeps_its_slot_until_the_next_decode_step(version, wait_steps):
    """All slots are taken: who takes over a slot starts one decode step later."""
    rows = [scripted(f"r{i}", (i, 100), output=40 + 20 * i) for i in range(2)]
    late = scripted("late", (9, 50), output=2, arrival_ns=1_000_000)
    steps = steps_of(version, *rows, late, max_running_requests=2, disable_overlap_schedule=True)
    # A prefill step and 39 decode steps end the first row.
    joined = next(i for i, step in enumerate(steps) if i and step["prefill"])
    assert joined == 40 + wait_steps


@pytest.mark.parametrize(("version", "needed"), [("0.5.9", 28), ("0.5.10", 28), ("0.5.23", 29)])
def test_room_that_a_candidate_needs(make_pass, version, needed):
    """20 for its prompt and 8 for its output, or a page more. Equal is too little."""
    for free, verdict in [(needed, NO_TOKEN), (needed + 1, CONTINUE)]:
        one = make_pass(version=version, max_total_tokens=free)
        one.offer("a", 20, 8)
        assert bool(one.admitted) == (verdict is CONTINUE)


@pytest.mark.parametrize(("version", "charged"), [("0.5.9", 28), ("0.5.10", 29), ("0.5.23", 29)])
def test_charge_of_an_admitted_row(make_pass, version, charged):
    """From 0.5.10 on it includes a page for what rounding may take."""
    one = make_pass(version=version, max_total_tokens=1000)
    one.offer("a", 20, 8)
    assert one.adder.budget.total_offset == charged


@pytest.mark.parametrize(("version", "reserved"), [("0.5.9", 5.0), ("0.5.23", 10.0)])
def test_reservation_of_a_row_of_known_length(make_pass, version, reserved):
    """Ten tokens are left: half of them by the ratio, or all, because it will need them."""
    row = waiting_request("r", (1, 10), limit=15, ignore_eos=True)
    one = make_pass(version=version, ratio=0.5, running=[(row, 5)])
    assert one.adder.budget.total_offset == reserved
    assert one.adder.reservation(row) == reserved


@pytest.mark.parametrize(("version", "taken"), [("0.5.9", 60), ("0.5.23", 100)])
def test_input_limit_with_chunks(make_pass, version, taken):
    """A second prompt of 50 exceeds the 40 left of the input budget: older versions leave it."""
    one = make_pass(version=version, max_prefill_tokens=100, chunked_prefill_size=100)
    assert one.offer("a", 60, 5) is CONTINUE
    assert one.offer("b", 50, 5) is OTHER
    assert sum(length for _, length in one.admitted) == taken


@pytest.mark.parametrize(("version", "needed"), [("0.5.9", 20), ("0.5.23", 21)])
def test_known_length_without_a_cache_needs_its_prompt(make_pass, version, needed):
    """Beside a row that is about to end; the newest asks for a page more (rule 6)."""
    for free, is_taken in [(needed - 1, False), (needed + 1, True)]:
        row = waiting_request("r", (1, 10), limit=10, ignore_eos=True)
        one = make_pass(
            version=version,
            max_total_tokens=20 + free,
            disable_radix_cache=True,
            running=[(row, 10)],
        )
        one.offer("a", 20, 0, ignore_eos=True)
        assert bool(one.admitted) == is_taken


@pytest.mark.parametrize(("version", "num_retracted"), [("0.5.1", 3), ("0.5.9", 1), ("0.5.23", 1)])
def test_retraction_makes_room_for_one_step_or_several(version, num_retracted):
    """One row's 12 tokens let the others go on; the oldest version wants 20 free for each."""
    rows = [scripted(str(i), (i, 5), output=20) for i in range(4)]
    steps = steps_of(version, *rows, max_total_tokens=50, clip_max_new_tokens=1)
    retracted = [len(step["retracted"]) for step in steps if step["retracted"]]
    assert retracted[0] == num_retracted


@pytest.mark.parametrize(("version", "is_full"), [("0.5.9", True), ("0.5.23", False)])
def test_candidate_behind_a_chunk_that_takes_the_whole_step(version, is_full):
    """The newest ends the pass; older versions still see that memory is short, and set the flag."""
    rows = [scripted("a", (1, 128), output=4), scripted("b", (2, 30), output=100)]
    steps = steps_of(version, *rows, max_total_tokens=200, chunked_prefill_size=64)
    assert [len(step["prefill"]) for step in steps[:2]] == [1, 1]
    assert steps[1]["full"] is is_full
