"""Windows that are loaded from host memory, next to those that are still on the device.

SGLang 0.5.23's own classes decide the same, and end with an error in the same step.
"""

import pytest

from sim.core.errors import InputError
from sim.des.run import RunOptions
from tests.support.conformance import scenario_of, serve_scenario

# The window pool has 322 tokens, of which 255 are a window.
CONFIG = {
    "kv_pool_tokens": 1610, "swa_full_tokens_ratio": 0.2, "sliding_window": 255,
    "hicache_ratio": 4.0, "hicache_write_policy": "write_through", "copy_s_per_token": 1e-7,
}  # fmt: skip


def serve_last(extend_len):
    """A prompt of 299 cached tokens and `extend_len` more.

    Of the 299 tokens, the last 85 have their KV in the window pool. That of the 214 before them
    was evicted, and is loaded from host memory.
    """
    prompts = [[1, 214]], [[1, 214], [2, 85]], [[3, 30]], [[1, 214], [2, 85], [4, extend_len]]
    rows = [
        {"rid": f"r{i}", "arrival": i, "segments": segments, "output_len": 1, "max_new_tokens": 1}
        for i, segments in enumerate(prompts)
    ]
    return serve_scenario(scenario_of(CONFIG), rows, RunOptions())


def test_prompt_has_the_room_that_its_load_leaves():
    """Of 322 tokens, 214 are loaded and 85 are there."""
    loaded = [line["loaded"] for line in serve_last(23) if line["kind"] == "step"]
    assert loaded == [[], [], [], [["r3", 299]]]


def test_load_that_leaves_a_prompt_too_little_room_ends_the_run_as_it_ends_sglang():
    """The budget counts the 85 tokens as evictable; the load locks them."""
    with pytest.raises(InputError, match="swa_full_tokens_ratio: is too small: SGLang ends here"):
        serve_last(24)


def test_kv_of_a_window_that_is_freed_twice_ends_the_run_as_it_ends_sglang():
    """Found by random cases; the assertion is that of `free_group_end`."""
    config = {
        "policy": "hrrn", "eviction_policy": "priority", "page_size": 16, "kv_pool_tokens": 1024,
        "chunked_prefill_size": 1024, "max_prefill_tokens": 4096, "max_running_requests": 8,
        "schedule_conservativeness": 0.6, "clip_max_new_tokens": 256, "enable_overlap": True,
        "min_free_slots_delay": 2, "waiting_timeout_s": 0.611, "random_seed": 1204,
        "latency": {"a": 0.002, "b": 1e-5, "c": 0.0002, "d": 0},
        "sliding_window": 64, "swa_full_tokens_ratio": 0.3, "swa_eviction_interval": 128,
    }  # fmt: skip
    prompts = {
        10.917: ([[800, 92], [53, 144]], 172, 172),
        11.192: ([[802, 190], [14, 121], [914, 155], [16, 128], [916, 245], [55, 60]], 169, 169),
        11.314: ([[41, 74], [941, 242], [56, 100]], 206, 824),
        11.681: ([[803, 175], [30, 153], [930, 250], [51, 98], [951, 193], [57, 43]], 211, 218),
        11.901: ([[802, 202], [34, 57], [934, 34], [44, 92], [944, 30], [58, 27]], 136, 29),
    }
    rows = [
        {"rid": f"r{arrival}", "arrival": arrival, "segments": segments, "output_len": output_len,
         "max_new_tokens": max_new_tokens}
        for arrival, (segments, output_len, max_new_tokens) in prompts.items()
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"SGLang ends here \(free_group_end"):
        serve_scenario(scenario_of(config), rows, RunOptions())
