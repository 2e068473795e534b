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
