"""The decision log of a vLLM server, and when a decision sees an arrival (rule 12)."""

import pytest

from sim.vllm.config import VllmConfig
from sim.workload.workload import listed
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

_MS = 1_000_000


def steps_of(*requests, **settings):
    return serve(listed(requests), VllmConfig(async_scheduling=False, **settings)).steps


def test_log_counts_cached_blocks_that_nobody_uses_as_free():
    """All blocks are free again after a, though most can be found; nothing is evictable."""
    a = scripted("a", (1, 100), output=2)
    b = scripted("b", (1, 100), output=2, arrival_ns=10**9)
    steps = steps_of(a, b, num_gpu_blocks=11)
    assert [step["free"] for step in steps] == [48, 48, 48, 48]
    assert steps[2]["prefill"] == [["b", 96, 4]]
    assert all(step["evictable"] == 0 for step in steps)
    assert all(step["used"] == 160 - step["free"] for step in steps)


def test_log_names_the_first_prompt_with_chunks_to_come():
    """In order of admission; a second one in progress is not named."""
    requests = [scripted(rid, (i, 50), output=3) for i, rid in enumerate("ab")]
    steps = steps_of(*requests, long_prefill_token_threshold=20, max_num_batched_tokens=30,
                     max_num_seqs=2)  # fmt: skip
    assert [step["chunked"] for step in steps] == ["a", "a", "b", None, None, None]
    assert [step["mode"] for step in steps] == ["extend"] * 3 + ["mixed"] + ["decode"] * 2


def test_log_says_full_when_every_seat_is_taken():
    """And counts those that run in mixed steps too; the ratio is not vLLM's."""
    requests = [scripted(rid, (i, 20), output=2 + i) for i, rid in enumerate("abc")]
    steps = steps_of(*requests, max_num_seqs=2)
    assert [(step["running"], step["queue"], step["full"]) for step in steps] == [
        (2, 1, True), (2, 1, True), (2, 0, True), (1, 0, False), (1, 0, False), (1, 0, False)
    ]  # fmt: skip
    assert {step["ratio"] for step in steps} == {0.0}
    assert steps[2]["mode"] == "mixed"


def test_log_pairs_each_victim_with_the_one_in_need():
    """Also of a decision that launched nothing: those stand with the next step."""
    requests = [scripted(rid, (i, 4), output=9) for i, rid in enumerate("abcd")]
    steps = steps_of(*requests, num_gpu_blocks=5, block_size=4, max_model_len=16)
    assert steps[1]["preempted"] == [["a", ["d"]], ["b", ["c"]]]
    first = scripted("a", (1, 3), output=5, priority=1)
    second = scripted("b", (2, 4), output=4, priority=0, arrival_ns=1)
    served = serve(
        listed([first, second]),
        VllmConfig(
            async_scheduling=False,
            num_gpu_blocks=3,
            block_size=4,
            max_model_len=8,
            scheduling_policy="priority",
        ),
    )
    assert [step["preempted"] for step in served.steps[:4]] == [[], [], [["a", ["a"]]], []]
    assert served.request("a")["preemptions"] == 1


@pytest.mark.parametrize(("ahead", "step"), [(False, 2), (True, 3)])
def test_arrival_is_seen_by_the_next_decision(ahead, step):
    """b comes while step 1 runs: step 2 is decided after it, or was when step 1 began."""
    a = scripted("a", (1, 10), output=9)
    b = scripted("b", (2, 10), output=9, arrival_ns=7 * _MS)
    config = VllmConfig(async_scheduling=ahead)
    latency = linear_latency(
        step_s=0.005, per_prefill_token_s=0, per_decode_request_s=0, per_context_token_s=0
    )
    steps = serve(listed([a, b]), config, [latency]).steps
    assert [s["step"] for s in steps if ["b", 0, 10] in s["prefill"]] == [step]
    assert steps[step]["t_decided_ns"] == 10 * _MS
