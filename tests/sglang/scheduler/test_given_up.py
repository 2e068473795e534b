"""Requests that end before their answers are complete (rule 21), by hand."""

import pytest

from sim.sglang.config import SchedulerConfig
from sim.vllm.config import VllmConfig
from sim.workload.workload import listed
from tests.support.serve import serve
from tests.support.workloads import scripted

MS = 1_000_000


def statuses(served, rids):
    return [served.request(rid)["status"] for rid in rids]


@pytest.mark.parametrize(
    "config",
    [SchedulerConfig(max_running_requests=1), VllmConfig(max_num_seqs=1)],
    ids=["sglang", "vllm"],
)
def test_waiting_request_whose_client_gives_up_is_never_computed(config):
    """The running one goes on; the third takes the place of the second."""
    work = [
        scripted("runs", (1, 50), output=100),
        scripted("waits", (2, 50), output=5, arrival_ns=MS, gives_up_ns=20 * MS),
        scripted("after", (3, 50), output=5, arrival_ns=2 * MS),
    ]
    served = serve(listed(work), config)
    assert statuses(served, ("runs", "waits", "after")) == ["finished", "aborted", "finished"]
    assert served.request("waits")["scheduled_ns"] == -1
    assert served.request("waits")["finish_ns"] == -1


def test_running_request_of_sglang_ends_with_its_next_result():
    """It keeps what it generated; under overlap it decodes one token for nothing."""
    work = [scripted("a", (1, 50), output=500, gives_up_ns=1_000_000_371)]
    for disabled in (True, False):
        config = SchedulerConfig(disable_overlap_schedule=disabled)
        served = serve(listed(work), config)
        assert served.request("a")["status"] == "aborted"
        last = [step for step in served.steps if step["t_decided_ns"] > 1_000_000_371]
        assert len(last) == 1
        assert served.request("a")["output_tokens"] == len(served.steps) - (not disabled)


@pytest.mark.parametrize("ahead", [True, False], ids=["async", "sync"])
def test_running_request_of_vllm_is_gone_before_the_next_result(ahead):
    """If its client gives up just when its last step ends, it has all tokens but the last one.

    No step is decided after that. Fast-forward stops before the step.
    """
    config = VllmConfig(async_scheduling=ahead)
    end_ns = serve(listed([scripted("a", (1, 50), output=500)]), config).request("a")["finish_ns"]
    for late_ns, status, num_tokens in ((0, "aborted", 499), (1, "finished", 500)):
        work = [scripted("a", (1, 50), output=500, gives_up_ns=int(end_ns) + late_ns)]
        served = serve(listed(work), config)
        assert served.request("a")["status"] == status
        assert served.request("a")["output_tokens"] == num_tokens
        assert all(step["t_decided_ns"] < end_ns for step in served.steps)
        assert served.text == serve(listed(work), config, fast_forward=False).text


def test_chunked_request_that_is_given_up_caches_nothing_of_its_last_chunk():
    """The decision after it names it, and the next prompt starts at once."""
    work = [
        scripted("long", (1, 900), output=5, gives_up_ns=8 * MS),
        scripted("next", (1, 900), output=5, arrival_ns=MS),
    ]
    config = SchedulerConfig(chunked_prefill_size=256, disable_overlap_schedule=True)
    served = serve(listed(work), config)
    assert statuses(served, ("long", "next")) == ["aborted", "finished"]
    aborting = next(step for step in served.steps if step["aborted"])
    assert aborting["aborted"] == ["long"]
    assert aborting["prefill"][0][0] == "next"
    assert served.request("next")["cached_tokens"] == 0


def test_full_queue_drops_the_request_that_enters_or_the_least_important():
    """Without priorities the newest is dropped, with priorities the least important."""
    work = [
        scripted("runs", (1, 50), output=50),
        scripted("low", (2, 50), output=5, arrival_ns=MS, priority=1),
        scripted("high", (3, 50), output=5, arrival_ns=2 * MS, priority=5),
    ]
    config = SchedulerConfig(max_running_requests=1, max_queued_requests=1)
    served = serve(listed(work), config)
    assert statuses(served, ("runs", "low", "high")) == ["finished", "finished", "aborted"]
    config = SchedulerConfig(
        max_running_requests=1,
        max_queued_requests=1,
        enable_priority_scheduling=True,
        disable_priority_preemption=True,
    )
    served = serve(listed(work), config)
    assert statuses(served, ("runs", "low", "high")) == ["finished", "aborted", "finished"]


@pytest.mark.parametrize("limit", ["waiting_timeout_ns", "running_timeout_ns"])
def test_late_requests_are_aborted_at_the_first_decision_after_their_time(limit):
    """The waiting one alone, or the running one alone and then the other."""
    work = [
        scripted("runs", (1, 50), output=100),
        scripted("waits", (2, 50), output=3, arrival_ns=MS),
    ]
    config = SchedulerConfig(max_running_requests=1, **{limit: 200 * MS + 371})
    served = serve(listed(work), config)
    expected = ["finished", "aborted"] if limit.startswith("waiting") else ["aborted", "finished"]
    assert statuses(served, ("runs", "waits")) == expected
