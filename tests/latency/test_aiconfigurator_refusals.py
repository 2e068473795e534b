"""Why there are no times, and for what there are some: in words that a user can act on."""

import json

import pytest

from sim.latency.aiconfigurator.deployment import ModelDeployment, reason_of, what_there_is
from sim.latency.config import Parallelism

MISTRAL = json.dumps({"architectures": ["LlamaForCausalLM"]})
ROWS = [
    ("meta/llama", "h200_sxm", "sglang", "PASS"),
    ("meta/llama", "b200_sxm", "sglang", "PASS"),
    ("meta/llama", "b200_sxm", "trtllm", "PASS"),
    ("meta/llama", "l40s", "vllm", "PASS"),
    ("meta/llama", "b60", "vllm", "FAIL"),
]
KEYS = ("HuggingFaceID", "System", "Backend", "Status")
MATRIX = [{**dict(zip(KEYS, row, strict=True)), "Architecture": "LlamaForCausalLM"} for row in ROWS]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("missing system flops: quant mode 'nvfp4' needs 'fp4_tc_flops', which this system's YAML",
         "h200_sxm has no arithmetic in fp4"),
        ("perf database error: perf database error: no DSA rows (first: /x/y): none\nkeys",
         "no DSA rows"),
        ('GEMM data missing for quant \'int8\' at /x/y z/0.5; available: ["fp8"]',
         'GEMM data missing for quant \'int8\' z/0.5; available: ["fp8"]'),
        ("attention data missing for head_size: 96: tried lane_order [1, 2]",
         "attention data missing for head_size: 96"),
        (("word " * 50).strip(), ("word " * 40).strip() + " ..."),
        ("", "RuntimeError"),
    ],
)  # fmt: skip
def test_reason_is_the_first_sentence_without_files(message, reason):
    """Short, on one line."""
    assert reason_of(RuntimeError(message), "h200_sxm") == reason


def test_reason_of_a_missing_key_names_it():
    """The model's configuration lacks it."""
    assert reason_of(KeyError("head_dim"), "l40s") == "its configuration lacks 'head_dim'"


@pytest.mark.parametrize(
    ("change", "there_is"),
    [
        ({}, "it has those of meta/llama in its own formats with sglang on b200_sxm, h200_sxm"),
        ({"backend": "vllm"}, "it has those of meta/llama in its own formats with vllm on l40s"),
        ({"model": "./mine", "config": MISTRAL, "backend": "trtllm"},
         "it has those of ./mine in its own formats with trtllm on b200_sxm"),
        ({"backend": "other"},
         "it has those of meta/llama in its own formats with sglang on b200_sxm, h200_sxm"),
        ({"model": "a/b"}, "it has none of a/b on any system"),
        ({"parallelism": Parallelism(tp=3, dp=2)},
         "messages were measured between 2, 4, 8, ... GPUs, and tp x dp is 6"),
    ],
)  # fmt: skip
def test_what_there_is_for_the_model(change, there_is):
    """With the same engine, else with another; unless the number of GPUs is odd."""
    wanted = ModelDeployment("meta/llama", None, "a100_sxm", "sglang", None, Parallelism())
    assert what_there_is(wanted._replace(**change), MATRIX) == there_is
