"""Curves against servers with pools of several sizes, which serve one request at a time."""

import pytest

import servetwin as st
from sim.workload.reuse.curve import hit_curve

CLIENT = {
    "kind": "clients",
    "clients": 1,
    "requests_per_client": 150,
    "think_s": {"kind": "constant", "value": 1},
    "prompt_tokens": {"kind": "uniform", "min": 1, "max": 60},
    "output_tokens": {"kind": "uniform", "min": 1, "max": 40},
    "prefixes": {
        "groups": 12,
        "tokens": {"kind": "uniform", "min": 10, "max": 200},
        "share_probability": 0.8,
    },
}
SESSIONS = {
    "kind": "sessions",
    "sessions": 60,
    "clients": 1,
    "turns": {"kind": "uniform", "min": 1, "max": 4},
    "user_tokens": {"kind": "uniform", "min": 1, "max": 40},
    "output_tokens": {"kind": "uniform", "min": 1, "max": 20},
    "think_s": {"kind": "constant", "value": 1},
    "system_prompts": {"count": 4, "tokens": 60},
}
LINEAR = {
    "kind": "linear",
    "step_s": 0.001,
    "per_prefill_token_s": 1e-6,
    "per_decode_request_s": 0,
    "per_context_token_s": 0,
}


@pytest.mark.parametrize("section", [CLIENT, SESSIONS], ids=["prefixes", "sessions"])
def test_a_vllm_server_finds_what_the_curve_says(section, build):
    """Two blocks of a pool hold no full block: vLLM's null block, and the end of the last request.

    If that request ended with a full block, the server finds a block more.
    """
    curve = hit_curve(build(section))
    for num_blocks in (21, 30, 60, 100, 150, 400):
        scheduler = {"family": "vllm", "num_gpu_blocks_override": num_blocks + 2}
        run = st.run(
            {
                "name": "one at a time",
                "latency": LINEAR,
                "workload": section,
                "scheduler": scheduler | {"max_num_batched_tokens": 512, "max_model_len": 320},
            }
        )
        found = run.summary["cache_hit_rate_pct"]
        assert curve.hit_pct(num_blocks) <= found + 1e-9
        assert found <= curve.hit_pct(num_blocks + 1) + 1e-9
    assert curve.hit_pct(21) < curve.hit_pct(400) - 5
