"""Pipelines from the command line: what runs write, what is refused, logs decided again."""

import itertools
import json
from pathlib import Path

import pytest

PIPELINE = """
name: pipeline
model: llama-3.1-8b
hardware: h100-sxm
latency: {kind: roofline, pp: 2}
host: vllm-sync
workload: {kind: synthetic, num_requests: 30, arrivals: {kind: poisson, rate_rps: 40},
  prompt_tokens: {kind: constant, value: 600}, output_tokens: {kind: constant, value: 20}}
scheduler: {family: vllm, async_scheduling: false, max_num_batched_tokens: 512}
"""
SGLANG = "scheduler={family: sglang, max_total_tokens: 16384, chunked_prefill_size: 512}"


@pytest.fixture
def pipeline(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pipeline.yaml").write_text(PIPELINE, encoding="utf-8")
    return "pipeline.yaml"


@pytest.mark.parametrize("options", [(), ("--set", SGLANG)], ids=["vllm", "sglang"])
def test_pipeline_s_steps_overlap_and_are_decided_the_same_again(simulate, pipeline, options):
    """A Perfetto trace shows the steps of one server on two tracks, on which none overlap."""
    files = ("--perfetto", "p.json", "--decisions", "d.jsonl")
    assert simulate("run", pipeline, *options, "--set", "host=", *files).code == 0
    events = json.loads(Path("p.json").read_text("utf-8"))["traceEvents"]
    steps = [event for event in events if event["ph"] == "X"]
    assert any(a["ts"] + a["dur"] > b["ts"] for a, b in itertools.pairwise(steps))
    for track in (1, 2):
        mine = [event for event in steps if event["tid"] == track]
        pairs = itertools.pairwise(mine)
        assert all(a["ts"] + a["dur"] <= b["ts"] + 0.001 for a, b in pairs)
    ended = simulate("compare", "d.jsonl", pipeline, *options, "--set", "host=")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith(" steps are decided the same again\n")
    options = (*options, "--set", "host=", "--set", "latency.pp=4")
    other = simulate("compare", "d.jsonl", pipeline, *options)
    assert "steps are decided the same again" not in other.out


@pytest.mark.parametrize(("version", "overlap"), [("0.19", False), ("0.33", True)])
def test_pipeline_of_async_vllm_had_one_step_at_a_time(simulate, pipeline, version, overlap):
    """In 0.19 the first stage waits for the last one's tokens; now there are micro-batches."""
    options = (
        "--set",
        "scheduler.async_scheduling=true",
        "--set",
        f"scheduler.version='{version}'",
    )
    assert simulate("run", pipeline, *options, "--decisions", "d.jsonl").code == 0
    lines = [json.loads(line) for line in Path("d.jsonl").read_text("utf-8").splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    pairs = itertools.pairwise(steps)
    assert any(a["t_end_ns"] > b["t_start_ns"] for a, b in pairs) == overlap


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("latency.pp=33", "33 stages are more than the model's 32 layers"),
        (
            "scheduler={family: vllm, version: 0.14.0, async_scheduling: true}",
            "vLLM 0.14.0 has no async scheduling with latency.pp above 1",
        ),
        ("latency={kind: layers, path: here, pp: 2}", "latency.pp: unknown key"),
    ],
)
def test_pipeline_refuses_what_is_not_simulated(simulate, pipeline, setting, reason):
    """In one line."""
    ended = simulate("run", pipeline, "--set", setting)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert reason in ended.err
