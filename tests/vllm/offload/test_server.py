"""A server with KV in CPU memory, as its clients see it."""

import pytest

from sim.core.errors import InputError
from sim.vllm.config import VllmConfig
from sim.vllm.offload.settings import OffloadSettings
from sim.workload.workload import listed
from tests.support.serve import serve
from tests.support.vllm_conformance import VllmCase, serve_vllm_case
from tests.support.workloads import scripted

SECOND = 1_000_000_000
PROMPT = (1, 64)


def run(*requests, offload, **settings):
    config = VllmConfig(max_model_len=128, offload=offload, **settings)
    return serve(listed(requests), config)


def test_prompt_comes_back_from_cpu_memory_as_soon_as_it_is_copied():
    """Nothing is found on the GPU. 64 tokens take 64 us; the last one is computed again."""
    first = scripted("a", PROMPT, output=3)
    second = scripted("b", PROMPT, output=1, arrival_ns=SECOND)
    offload = OffloadSettings(num_chunks=9, copy_ns_per_token=1000.0)
    served = run(
        first, second, offload=offload, enable_prefix_caching=False, async_scheduling=False
    )
    found = served.request("b")
    assert (found["cached_tokens"], found["host_cached_tokens"]) == (63, 63)
    assert found["scheduled_ns"] == SECOND + 64_000
    last = served.steps[-1]
    assert (last["prefill"], last["loaded"], last["host_used"]) == ([["b", 63, 1]], [["b", 63]], 64)


def test_last_chunk_of_an_answer_is_copied_without_another_request():
    """Under async scheduling its last token is known when the request has ended."""
    first = scripted("a", (1, 60), output=5, output_seed=7)
    second = scripted("b", (1, 60), (7, 4), (2, 9), output=1, arrival_ns=SECOND)
    offload = OffloadSettings(num_chunks=9, offload_prompt_only=False, copy_ns_per_token=1000.0)
    found = run(first, second, offload=offload, enable_prefix_caching=False).request("b")
    assert (found["cached_tokens"], found["host_cached_tokens"]) == (64, 64)
    assert found["scheduled_ns"] == SECOND + 64_000


def test_less_than_a_chunk_is_not_loaded():
    """The GPU has 48 of 64 tokens, CPU memory both chunks of 32."""
    requests = [
        scripted("a", PROMPT, output=1),
        scripted("other", (2, 70), output=1, arrival_ns=SECOND),
        scripted("b", PROMPT, (3, 40), output=1, arrival_ns=2 * SECOND),
    ]
    offload = OffloadSettings(num_chunks=9, blocks_per_chunk=2, copy_ns_per_token=1000.0)
    found = run(*requests, offload=offload, num_gpu_blocks=9).request("b")
    assert (found["cached_tokens"], found["host_cached_tokens"]) == (48, 0)


def test_a_step_waits_for_loads_within_its_budget():
    """64 tokens take 64 us; the request runs in the step that loads them, if they fit."""
    requests = [
        scripted("a", PROMPT, output=1),
        scripted("b", PROMPT, (2, 10), output=1, arrival_ns=SECOND),
    ]
    settings = {"enable_prefix_caching": False, "async_scheduling": False}
    for budget, scheduled_ns in ((63, SECOND + 64_000), (64, SECOND)):
        offload = OffloadSettings(num_chunks=9, copy_ns_per_token=1000.0, sync_load_tokens=budget)
        served = run(*requests, offload=offload, **settings)
        assert served.request("b")["scheduled_ns"] == scheduled_ns
        last = served.steps[-1]
        assert (last["prefill"], last["loaded"]) == ([["b", 64, 10]], [["b", 64]])
        assert last["t_start_ns"] == SECOND + 64_000


@pytest.mark.parametrize("is_busy", [False, True])
def test_old_server_hears_of_copies_when_it_has_requests_again(is_busy):
    """It keeps the blocks of a request until then, and its chunks are not found."""
    slow = OffloadSettings(num_chunks=9, offload_prompt_only=False, copy_ns_per_token=1e6)
    requests = [
        scripted("a", PROMPT, output=2),
        scripted("b", (2, 30), output=1, arrival_ns=SECOND),
        scripted("c", PROMPT, output=1, arrival_ns=2 * SECOND),
    ]
    if not is_busy:
        del requests[1]
    settings = {"num_gpu_blocks": 17, "enable_prefix_caching": False, "version": "0.19.0"}
    served = run(*requests, offload=slow, **settings)
    step = next(step for step in served.steps if step["t_start_ns"] >= SECOND)
    assert step["free"] == (16 - 5 - (2 if is_busy else 4)) * 16
    found = served.request("c")["host_cached_tokens"]
    assert found == (63 if is_busy else 0)


def test_requests_that_were_loaded_may_keep_each_other_waiting():
    """Each of two has three of its blocks, and two are free. The first one lacks four."""
    offload = OffloadSettings(num_chunks=9, offload_prompt_only=False, copy_ns_per_token=1000.0)
    requests = [
        scripted("a", (1, 48), output=2),
        scripted("b", (2, 48), output=2, arrival_ns=SECOND),
        scripted("c", (1, 48), (3, 63), output=1, arrival_ns=2 * SECOND),
        scripted("d", (2, 48), (4, 31), output=1, arrival_ns=2 * SECOND),
    ]
    settings = {"num_gpu_blocks": 9, "enable_prefix_caching": False}
    run(*requests, offload=offload, **settings)
    with pytest.raises(InputError, match="keeps 2 requests waiting for ever"):
        run(*requests, offload=offload, version="0.19.0", **settings)


def simple(num_blocks, **settings):
    """Of `SimpleCPUOffloadConnector`; a block takes 16 us."""
    return OffloadSettings(
        connector="SimpleCPUOffloadConnector",
        num_chunks=num_blocks,
        copy_ns_per_token=1000.0,
        **settings,
    )


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_lazy", [False, True])
def test_simple_connector_brings_a_prompt_back(is_async, is_lazy):
    """Another prompt has taken its blocks on the GPU meanwhile. Three of its four come back."""
    requests = [
        scripted("a", PROMPT, output=3),
        scripted("other", (2, 112), output=2, arrival_ns=SECOND),
        scripted("b", PROMPT, output=1, arrival_ns=2 * SECOND),
    ]
    served = run(
        *requests,
        offload=simple(20, lazy_offload=is_lazy),
        num_gpu_blocks=9,
        async_scheduling=is_async,
    )
    found = served.request("b")
    assert (found["cached_tokens"], found["host_cached_tokens"]) == (48, 48)
    assert found["scheduled_ns"] >= 2 * SECOND + 48_000


def test_simple_connector_does_nothing_without_prefix_caching():
    requests = [
        scripted("a", PROMPT, output=3),
        scripted("b", PROMPT, output=1, arrival_ns=SECOND),
    ]
    served = run(*requests, offload=simple(20), enable_prefix_caching=False)
    assert served.request("b")["cached_tokens"] == 0
    assert {step["host_used"] for step in served.steps} == {0}


def test_idle_server_ends_its_lazy_copies():
    """Seven blocks of the GPU's take turns in two of CPU memory, in vLLM for ever."""
    served = run(
        scripted("a", (1, 100), output=2), offload=simple(2, lazy_offload=True), num_gpu_blocks=9
    )
    assert served.request("a")["status"] == "finished"


def decode(*, num_blocks, patience_s):
    """A decode server that loses the KV of a prompt, which CPU memory has and the GPU no longer."""
    config = {
        "version": "0.33.0", "role": "decode", "kv_load_failure_policy": "recompute",
        "num_gpu_blocks": num_blocks, "block_size": 16, "policy": "fcfs", "max_model_len": 112,
        "latency": {"a": 0.01, "b": 0, "c": 0, "d": 0}, "async_scheduling": False,
        "enable_prefix_caching": True,
        "offload": {"num_chunks": 20, "blocks_per_chunk": 1, "copy_ns_per_block": 1000},
    }  # fmt: skip
    rows = [
        {"rid": rid, "arrival": arrival_s, "segments": segments, "output_len": 2}
        | {"handover": {"after_s": 0.001, "fails": rid == "b"}}
        for arrival_s, rid, segments in (
            (0.0, "a", [[1, 64]]),
            (1.0, "other", [[2, 110]]),
            (2.0, "b", [[1, 64]]),
        )
    ]
    if patience_s:
        rows[2]["gives_up_after"] = patience_s
    lines = serve_vllm_case(VllmCase("lost", config, rows, ()))
    return next(line for line in lines if line["kind"] == "req" and line["rid"] == "b")


def test_lost_kv_is_loaded_from_cpu_memory_if_its_prompt_fits_twice():
    """vLLM 0.33.0: `_inflight_prefill_reserved_blocks` counts its own four blocks, too."""
    assert decode(num_blocks=9, patience_s=None)["status"] == "finished"
    assert decode(num_blocks=8, patience_s=0.5)["status"] == "aborted"
    with pytest.raises(InputError, match=r"kv_load_failure_policy: .* waiting for ever"):
        decode(num_blocks=8, patience_s=None)
