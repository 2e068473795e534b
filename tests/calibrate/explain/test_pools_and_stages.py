"""Prefill and decode servers, and pipeline stages, with a fault planted in the second run."""

import json

import pytest

from calibrate.cli import main

LINEAR = """\
latency: {kind: linear, step_s: 0.006, per_prefill_token_s: 6.0e-05, per_decode_request_s: 6.0e-05,
  per_context_token_s: 2.0e-08}
"""
POOLS = """\
router: least-loaded
pools:
  prefill: {role: prefill, replicas: 3}
  decode: {role: decode, replicas: 2}
transfer: {bandwidth_gb_s: 10, latency_s: 0.001, bytes_per_token: 131072}
"""
TRAFFIC = """\
name: planted
seed: 4
workload:
  kind: synthetic
  num_requests: 70
  arrivals: {kind: poisson, rate_rps: 20}
  prompt_tokens: {kind: uniform, min: 200, max: 1400}
  output_tokens: {kind: uniform, min: 20, max: 100}
"""
SGLANG = "scheduler: {page_size: 16, max_total_tokens: 32768, context_length: 4096}\n"
VLLM = "scheduler: {family: vllm, num_gpu_blocks_override: 2048, max_model_len: 1600}\n"
STAGES = """\
model: llama-3.1-8b
hardware: h100-sxm
latency: {kind: roofline, pp: 2}
"""
SMALLER_POOL = {
    SGLANG: "pools.decode.scheduler.max_total_tokens=8192",
    VLLM: "pools.decode.scheduler.num_gpu_blocks_override=160",
}
# The cause that must come first, how it is told, and what is planted.
FAULTS = {
    "a smaller KV pool of the decode servers": (
        "decode: KV pool",
        " tokens",
        ["smaller pool"],
    ),
    "slower transfers": (
        "transfer",
        "bandwidth_gb_s 10.0 -> 1.5",
        ["transfer.bandwidth_gb_s=1.5"],
    ),
    "fewer prefill servers": ("prefill: servers", "3 -> 2", ["pools.prefill.replicas=2"]),
    "fewer decode servers": (
        "decode: servers",
        "2 -> 1",
        ["pools.decode.replicas=1"],
    ),
    "a slower GPU of the decode servers": (
        "decode: decode steps",
        "latency.step_s 0.006 -> 0.012",
        ["pools.decode.latency.step_s=0.012"],
    ),
    "a slower GPU of the prefill servers": (
        "prefill: prefill steps",
        "latency.per_prefill_token_s 6e-05 -> 0.0001",
        ["pools.prefill.latency.per_prefill_token_s=1.0e-04"],
    ),
    "other routing to prefill servers": (
        "prefill router",
        "least-loaded -> random",
        ["pools.prefill.router=random"],
    ),
}
# Small differences that are there, too.
OTHERS = [
    "workload.arrivals.rate_rps=20.2",
    "transfer.latency_s=0.0012",
    "pools.prefill.latency.step_s=0.0062",
    "pools.decode.latency.per_decode_request_s=6.2e-05",
]


def explained(capsys, path, *options):
    assert main(["explain", str(path), str(path), "--format", "json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def assert_nothing_is_left(found):
    """Both runs are simulated: only what changes a mean by less than 0.1 % is not explained."""
    for figure in ("ttft_ms", "tpot_ms"):
        assert abs(found["unexplained_ms"][figure]) < 0.004 * found["before"][figure]


def set_after(changes):
    return [part for change in changes for part in ("--set-after", change)]


@pytest.fixture
def disaggregated(tmp_path):
    """Returns a function that writes the scenario of a family."""

    def write(scheduler=SGLANG):
        path = tmp_path / "disaggregated.yaml"
        path.write_text(TRAFFIC + LINEAR + scheduler + POOLS, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("scheduler", [SGLANG, VLLM], ids=["sglang", "vllm"])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_of_disaggregated_servers_comes_first(disaggregated, capsys, fault, scheduler):
    name, detail, changes = FAULTS[fault]
    changes = [SMALLER_POOL[scheduler] if each == "smaller pool" else each for each in changes]
    found = explained(capsys, disaggregated(scheduler), *set_after([*OTHERS, *changes]))
    first = found["causes"][0]
    assert first["name"] == name
    assert detail in first["detail"]
    others = {"traffic", "transfer", "prefill: prefill steps", "decode: decode steps"}
    assert others <= {cause["name"] for cause in found["causes"]} | set(found["without_effect"])
    assert_nothing_is_left(found)
    assert sum(found["ttft_parts_ms"]["before"].values()) == pytest.approx(
        found["before"]["ttft_ms"]
    )


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ("transfer.bandwidth_gb_s=1.5", "transfer"),
        ("pools.decode.scheduler.max_total_tokens=8192", "memory_wait"),
        ("pools.decode.scheduler.max_running_requests=4", "decode_queue"),
        ("pools.prefill.latency.step_s=0.03", "prefill"),
    ],
)
def test_the_part_of_ttft_that_is_longer_is_told(disaggregated, capsys, change, part):
    parts = explained(capsys, disaggregated(), "--set-after", change)["ttft_parts_ms"]
    longer = {name: parts["after"][name] - parts["before"][name] for name in parts["before"]}
    assert max(longer, key=longer.__getitem__) == part


def test_servers_that_part_are_named_by_their_pool(disaggregated, capsys):
    found = explained(capsys, disaggregated(), "--set-after", "transfer.bandwidth_gb_s=1")
    parted = found["parted"]
    assert (parted["pool"], parted["server"]) == ("decode", 0)


def test_servers_of_two_kinds_are_explained_beside_servers_of_one(disaggregated, tmp_path, capsys):
    whole = tmp_path / "whole.yaml"
    whole.write_text(TRAFFIC + LINEAR + SGLANG + "replicas: 5\n", encoding="utf-8")
    assert main(["explain", str(whole), str(disaggregated()), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [cause["name"] for cause in found["causes"]] == [
        "servers, with their settings and step times"
    ]
    assert found["causes"][0]["detail"] == "5 -> 3 prefill, 2 decode"
    assert found["unexplained_ms"]["ttft_ms"] == pytest.approx(0, abs=1e-6)
    assert found["ttft_parts_ms"]["before"].keys() == {"prefill_queue", "prefill"}


@pytest.mark.parametrize(
    ("change", "name", "detail"),
    [
        ("latency.pp=1", "servers", "1 of 2 stages -> 1"),
        ("hardware=a100-80gb-sxm", "prefill steps", "hardware h100-sxm -> a100-80gb-sxm"),
        ("scheduler.max_running_requests=2", "max_running_requests", "256 -> 2"),
        ("replicas=2", "servers", "1 of 2 stages -> 2 of 2 stages"),
    ],
)
def test_the_difference_between_pipelines_comes_first(tmp_path, capsys, change, name, detail):
    path = tmp_path / "stages.yaml"
    busy = TRAFFIC.replace("rate_rps: 20", "rate_rps: 100")
    path.write_text(busy + SGLANG + STAGES, encoding="utf-8")
    found = explained(capsys, path, "--set-after", change)
    first = found["causes"][0]
    assert first["name"] == name
    assert detail in first["detail"]
    assert_nothing_is_left(found)
