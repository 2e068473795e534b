"""SGLang's rules and vLLM's on equal servers and traffic: the differences, and their rules."""

import pytest

SGLANG = {
    "family": "sglang",
    "page_size": 16,
    "max_total_tokens": 80000,
    "max_running_requests": 256,
    "chunked_prefill_size": 2048,
}
MIXED = {**SGLANG, "enable_mixed_chunk": True}
VLLM = {
    "family": "vllm",
    "block_size": 16,
    "num_gpu_blocks_override": 5001,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 2048,
}
FAMILIES = [SGLANG, VLLM, MIXED]


@pytest.fixture(scope="module")
def results(study):
    rates = {"workload.arrivals.rate_rps": [4, 12]}
    return study("families", {**rates, "scheduler": FAMILIES, "seeds": [2]})


def test_families_with_room_to_spare_do_the_same_work(results):
    """At a third of what the server can do, both answer as fast, and all of them."""
    sglang, vllm, _ = results.means("mean_ttft_ms", "scheduler", FAMILIES, rate_rps=4)
    assert vllm == pytest.approx(sglang, rel=0.1)
    assert results.means("completed", "scheduler", FAMILIES, rate_rps=4) == [600, 600, 600]
    assert results.means("preemptions", "scheduler", FAMILIES, rate_rps=4) == [0, 0, 0]


def test_families_prefill_first_stalls_the_others(results):
    """Decode rows sit out every prefill batch: the tail of gaps is a fifth longer and more."""
    for rate_rps in (4, 12):
        sglang, vllm, mixed = results.means("p99_itl_ms", "scheduler", FAMILIES, rate_rps=rate_rps)
        assert sglang > 1.15 * vllm
        assert mixed == pytest.approx(vllm, rel=0.1)  # in one batch with them, as in vLLM


def test_families_vllm_lets_in_and_takes_back_where_sglang_keeps_room(results):
    """Nobody is put back whose output was reckoned with; somebody waits for a second who was."""
    sglang, vllm, mixed = results.means("preemptions", "scheduler", FAMILIES, rate_rps=12)
    assert (sglang, mixed) == (0, 0)
    assert vllm > 50
    sglang, vllm, mixed = results.means("max_itl_ms", "scheduler", FAMILIES, rate_rps=12)
    assert vllm > 3 * sglang > 3 * mixed


def test_families_work_done_twice_is_no_more_than_work_not_begun(results):
    """As many tokens a second: what preemption computes again, full slots pay for."""
    _, vllm, mixed = results.means("output_throughput", "scheduler", FAMILIES, rate_rps=12)
    assert vllm == pytest.approx(mixed, rel=0.05)


def test_families_vllm_finds_what_is_being_computed(study):
    """Blocks are found as soon as they are scheduled: 23 of 24 sharers hit, first come or not."""
    servers = [
        {"family": "vllm", "num_gpu_blocks_override": 12501, "max_num_batched_tokens": 8192},
        {"family": "sglang", "max_total_tokens": 200000},
        {"family": "sglang", "max_total_tokens": 200000, "schedule_policy": "lpm"},
    ]
    results = study("lpm-24-8", {"scheduler": servers})
    vllm, fcfs, lpm = results.means("total_cached_tokens", "scheduler", servers)
    assert vllm == 23 * 2000
    assert fcfs < lpm < vllm
