"""How far to believe a summary: what it rests on, and intervals from measured servers."""

import math
from pathlib import Path

import numpy as np
import pytest

from sim.commands.running.simulate import simulate_measured, summary_of
from sim.confidence.confidence import before_traffic, confidence_of, over_seeds
from sim.confidence.intervals import (
    LACKS,
    Nearness,
    attainment_interval,
    calibration,
    distances,
    lacking,
    spread_of,
)
from sim.confidence.measured import MeasuredServers, ServerPoint, architecture_of, measured_servers
from sim.des.run import RunOptions
from sim.latency.architectures.model_key import load_model_shape
from sim.metrics.latencies import Slo, request_latencies
from sim.report.confidence_text import confidence_lines, serving_line
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text

NEARNESS = Nearness((4.0, 1.0, 1.0, 1.0, 1.0), (0.0, 0.0, 1.0, 0.0, 0.0), 0.1, 0.0)
EVERYWHERE = dict.fromkeys(LACKS, math.inf)
POINT = ServerPoint("vllm", "0.19.0", "dense", "64 layers of 5120", "h100_sxm", 16, 2, 1024, 256, 8)
OPERATORS = """\
model: Qwen/Qwen3-32B
host: vllm-async
latency: {kind: aiconfigurator, system: h100_sxm, backend: vllm, tp: 2}
scheduler: {family: vllm, num_gpu_blocks_override: 4096}
"""
CLOSED = """\
workload:
  kind: bench
  client: vllm
  num_prompts: 64
  input_len: 1024
  output_len: 1024
  max_concurrency: 16
"""
OPEN = """\
workload:
  kind: synthetic
  num_requests: 64
  arrivals: {kind: poisson, rate_rps: 1}
  prompt_tokens: {kind: constant, value: 1024}
  output_tokens: {kind: constant, value: 1024}
"""
LINEAR = """\
latency:
  kind: linear
  step_s: 0.01
  per_prefill_token_s: 0
  per_decode_request_s: 0
  per_context_token_s: 0
scheduler: {max_total_tokens: 100000}
"""
NOTHING = {"basis": "operators measured on the GPU", "rows": 0}
# Some of its requests keep limits of 100 and 20 ms.
BUSY = """\
name: busy
latency: {kind: linear, step_s: 0.005, per_prefill_token_s: 2.0e-5, per_decode_request_s: 1.0e-4,
  per_context_token_s: 0}
scheduler: {max_total_tokens: 100000}
workload:
  kind: synthetic
  num_requests: 200
  arrivals: {kind: poisson, rate_rps: 30}
  prompt_tokens: {kind: lognormal, mean: 1000, cv: 1}
  output_tokens: {kind: uniform, min: 2, max: 60}
"""
# As a run of the closed loop has it.
SUMMARY = {
    "completed": 64, "concurrency": 16.0, "total_input_tokens": 65536,
    "total_output_tokens": 65536, "saturated": False, "mean_ttft_ms": 300.0, "mean_tpot_ms": 16.0,
    "output_throughput": 950.0,
}  # fmt: skip


def servers(*points, errors=None):
    """Measured servers at points, all three means of each off by as much."""
    served = [(f"model-{number}", "1") for number in range(len(points))]
    errors = [0.0] * len(points) if errors is None else errors
    return MeasuredServers.of(served, points, [[error] * 3 for error in errors])


def confidence(text, **changes):
    return confidence_of(load_scenario_text(f"name: a\n{text}"), SUMMARY | changes)


def test_distance_counts_what_differs():
    """Another version counts 1 here, and so does each doubling of the prompts."""
    others = servers(POINT, POINT._replace(version="0.18.0"), POINT._replace(prompt_tokens=4096))
    assert distances(others, POINT, NEARNESS).tolist() == [0, 1, 2]


def test_spread_is_of_the_weighted_median():
    """Errors 0, 1 and 5; the first counts as much as both others together, and a little more."""
    near = POINT._replace(prompt_tokens=2048)
    others = servers(POINT, near, near, errors=[0.0, 1.0, 5.0])
    median, spread = spread_of(
        others, distances(others, POINT, NEARNESS), np.ones(3, np.bool_), NEARNESS
    )
    share = math.exp(-1)
    assert median.tolist() == [0.0] * 3
    assert spread == pytest.approx([6 * share / (1 + 2 * share)] * 3)


@pytest.mark.parametrize(
    ("changes", "lacks"),
    [
        ({}, "nothing"),
        ({"version": "0.18.0"}, "version"),
        ({"gpu": "h200_sxm", "version": "0.18.0"}, "gpu"),
        ({"model": "other"}, "model"),
        ({"model": "other", "architecture": "experts"}, "architecture"),
        ({"engine": "sglang"}, None),
    ],
)
def test_what_is_lacking_is_the_least_that_measured_servers_lack(changes, lacks):
    """A server that shares more with the point is taken before one that shares less."""
    others = servers(POINT._replace(**changes), POINT._replace(engine="sglang"))
    far = distances(others, POINT, NEARNESS)
    assert lacking(others, POINT, far, np.ones(2, np.bool_), EVERYWHERE) == lacks


def test_servers_beyond_reach_are_as_if_not_there():
    """Prompts eight times as long: the distance is 3."""
    others = servers(POINT._replace(prompt_tokens=8192))
    far, rows = distances(others, POINT, NEARNESS), np.ones(1, np.bool_)
    assert lacking(others, POINT, far, rows, {**EVERYWHERE, "nothing": 2.9}) == "version"
    assert lacking(others, POINT, far, rows, dict.fromkeys(LACKS, 2.9)) is None


def test_measured_operators_have_intervals_around_the_mean():
    """Wider where less like it was measured; the nearest servers are named."""
    found = confidence(OPERATORS + CLOSED)
    assert found["lacks"] == "version"
    assert found["rows"] == int(
        measured_servers()
        .with_the(POINT._replace(model="64 layers of 5120"), "engine", "model", "gpu")
        .sum()
    )
    assert found["nearest"][0]["model"] == "Qwen/Qwen3-32B"
    assert found["nearest"][0]["gpu"] == "h100_sxm"
    for name in ("mean_ttft_ms", "mean_tpot_ms", "output_throughput"):
        assert found[name]["low"] < SUMMARY[name] < found[name]["high"]
    unknown = confidence(OPERATORS.replace("Qwen3-32B", "Qwen3-8B") + CLOSED)
    assert unknown["lacks"] == "model"
    for name in ("mean_ttft_ms", "mean_tpot_ms"):
        width, wider = (
            math.log(each[name]["high"] / each[name]["low"]) for each in (found, unknown)
        )
        assert wider > width


def test_a_mean_is_expected_where_its_model_gpu_and_version_were_measured():
    """Half of such servers had a larger one; other servers make no better guess."""
    known = confidence(OPERATORS.replace("family: vllm", "family: vllm, version: 0.11.2") + CLOSED)
    assert known["lacks"] == "nothing"
    for name in ("mean_ttft_ms", "mean_tpot_ms", "output_throughput"):
        assert known[name]["low"] < known[name]["expected"] < known[name]["high"]
    assert "expected" not in confidence(OPERATORS + CLOSED)["mean_tpot_ms"]


def test_a_simulated_mean_outside_its_interval_is_named():
    """All measured servers of gpt-oss were faster than simulated there."""
    text = (OPERATORS + CLOSED).replace("Qwen/Qwen3-32B", "openai/gpt-oss-120b")
    found = confidence(text.replace("h100_sxm", "b200_sxm").replace("tp: 2", "tp: 1"))
    assert found["mean_tpot_ms"]["high"] < SUMMARY["mean_tpot_ms"]
    assert found["outside"]["mean_tpot_ms"] == "above"
    line = "    the simulated mean TPOT is above its interval: nearly all such servers were faster"
    assert line in confidence_lines(found)
    assert "outside" not in confidence(OPERATORS + CLOSED)


def test_slo_attainment_at_the_ends_is_counted_request_by_request():
    """All requests are slower by as much as the mean; the upper ends give the lower share."""
    built = build(load_scenario_text(BUSY, ["slo.ttft_ms=100", "slo.tpot_ms=20"]))
    log = simulate_measured(built, RunOptions())
    summary = summary_of(log, built.loaded.scenario)
    ends = {"low": 0.5, "expected": 1.0, "high": 1.5}
    means = {
        name: {end: factor * summary[name] for end, factor in ends.items()}
        for name in ("mean_ttft_ms", "mean_tpot_ms")
    }
    slo = Slo(100, 20, None, 99)
    found = attainment_interval(log, slo, summary, means)
    one = request_latencies(log.requests)
    tpot_ms = np.nan_to_num(one.tpot_ms)
    shares = [
        float(((factor * one.ttft_ms <= 100) & (factor * tpot_ms <= 20)).mean())
        for factor in (1.5, 1.0, 0.5)
    ]
    assert list(found.values()) == pytest.approx(shares)
    assert found["expected"] == pytest.approx(summary["slo_attainment"])
    assert 0 < found["low"] < found["expected"] < found["high"]
    assert attainment_interval(log, slo, summary, {}) == {}


def test_nearest_servers_say_how_many_and_in_what_they_differ():
    """Groups that differ in their load only; of the nearest of each, what is not the same."""
    found = confidence(OPERATORS + CLOSED, concurrency=100.0)
    first, *others = found["nearest"]
    assert sum(group["servers"] for group in found["nearest"]) == found["rows"] == 46
    assert (first["servers"], first["weight_bits"], first["num_gpus"]) == (45, 16, 2)
    assert first["differs"] == ["version", "concurrency"]
    assert others[0]["weight_bits"] == 8
    assert "weight_bits" in others[0]["differs"]


def test_before_traffic_the_load_does_not_matter():
    """No interval, no load; a formula has no servers near it."""
    operators, linear = (
        before_traffic(load_scenario_text(f"name: a\n{text}"), source)
        for text, source in ((OPERATORS + OPEN, "package"), (LINEAR + OPEN, ""))
    )
    assert operators["nearest"][0]["differs"] == ["version"]
    assert serving_line(operators).startswith(
        "step times: operators measured on the GPU: package; nearest of 798 measured servers: 45"
    )
    assert " at a time" not in serving_line(operators)
    assert linear == {"basis": "a formula of the scenario: nothing is claimed"}


def test_pools_say_what_each_of_them_rests_on():
    """Once, if it is the same."""
    pools = "pools: {p: {role: prefill}, d: {role: decode, latency: LATENCY}}\n"
    model = "model: llama-3.1-8b\nhardware: h100-sxm\ntransfer: {bandwidth_gb_s: 50}\n"
    text = f"{OPEN}{LINEAR}{model}{pools}"
    basis = "a formula of the scenario: nothing is claimed"
    assert confidence(text.replace(", latency: LATENCY", ""))["basis"] == basis
    assert confidence(text.replace("LATENCY", "{kind: roofline}"))["basis"] == (
        f"p: {basis}; d: data sheets: a floor, nothing is measured"
    )


def test_users_own_step_times_claim_nothing(tmp_path):
    """A class of the user's."""
    (tmp_path / "mine.py").write_text("class Mine:\n    step_ns = None\n")
    own = "latency: {kind: mine:Mine}\nscheduler: {max_total_tokens: 100000}\n"
    loaded = load_scenario_text(f"name: a\n{OPEN}{own}", base_dir=tmp_path)
    assert confidence_of(loaded, SUMMARY)["basis"] == "a class of the user's: nothing is claimed"


def test_means_over_seeds_have_the_means_of_the_ends():
    """No interval that a run lacks."""
    first = {"basis": "b", "mean_ttft_ms": {"low": 1.0, "expected": 2.0, "high": 3.0},
             "mean_tpot_ms": {"low": 1.0, "high": 2.0}}  # fmt: skip
    second = {"basis": "b", "mean_ttft_ms": {"low": 2.0, "expected": 3.0, "high": 5.0}}
    assert over_seeds([first, second]) == {
        "basis": "b", "mean_ttft_ms": {"low": 1.5, "expected": 2.5, "high": 4.0},
    }  # fmt: skip
    assert over_seeds([]) == {}


def test_traffic_at_a_rate_has_no_interval_of_what_the_rate_decides():
    """Of the throughput if the server keeps up, of TTFT if it does not."""
    text = OPERATORS + OPEN
    kept_up, late = confidence(text), confidence(text, saturated=True)
    assert "output_throughput" not in kept_up
    assert "mean_ttft_ms" in kept_up
    assert "mean_ttft_ms" not in late
    assert "output_throughput" in late


def test_nothing_is_claimed_where_nothing_was_measured():
    """A formula, loads that are far from all that was measured, no request that finished."""
    claimed_by = confidence(LINEAR + OPEN)
    assert claimed_by == {"basis": "a formula of the scenario: nothing is claimed", "rows": 0}
    far = {"total_input_tokens": 64 * 10**9, "concurrency": 1e6}
    reasons = {"no server like this one was measured near this load": far,
               "no request finished": {"completed": 0}}  # fmt: skip
    for reason, changes in reasons.items():
        found = confidence(OPERATORS + OPEN, **changes)
        assert found == NOTHING | {"no_interval": reason}
        assert confidence_lines(found)[1:] == [f"no interval: {reason}"]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("host: vllm-async\n", "", "host"),
        ("tp: 2}", "tp: 2, efficiency: 1.1}", "latency.efficiency"),
        ("tp: 2}", "tp: 2, pp: 2}", "stages"),
        ("4096}", "4096, speculative_config: {method: mtp, num_speculative_tokens: 1}}", "draft"),
    ],
)
def test_servers_unlike_all_measured_ones_have_no_interval(old, new, reason):
    """Without the host's costs, with corrected times, with stages, with drafts."""
    text = OPERATORS.replace(old, new) + CLOSED
    if "speculative" in new:
        text += "acceptance: {mean_length: 1.5}\n"
    found = confidence(text)
    assert reason in found.pop("no_interval")
    assert found == NOTHING


APART = """\
model: deepseek-ai/DeepSeek-R1
latency: {kind: aiconfigurator, system: gb200, backend: sglang, tp: 4, moe_ep: 4}
scheduler: {family: sglang, version: 0.5.9}
transfer: {bandwidth_gb_s: 900}
pools:
  prefill: {role: prefill, replicas: 2, host: {front_end_s: 0.06, step_gap_s: 0.1}}
  decode: {role: decode, replicas: 1, host: {front_end_s: 0.0624}}
"""


def test_disaggregated_servers_have_the_intervals_of_such_servers():
    """All GPUs and all requests count, and the names are those of both pools."""
    pytest.importorskip("aiconfigurator_core", reason="pip install -e '.[aiconfigurator]'")
    found = confidence(APART + CLOSED)
    assert (found["measured"], found["lacks"]) == (57, "nothing")
    assert found["mean_ttft_ms"]["low"] < found["mean_ttft_ms"]["expected"]
    assert found["mean_tpot_ms"]["high"] > found["mean_tpot_ms"]["expected"]
    assert found["nearest"][0]["gpu"] == "gb200"
    other = confidence(APART.replace("gb200", "h200_sxm") + CLOSED)
    assert other["lacks"] == "gpu"
    assert "expected" not in other["mean_tpot_ms"]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("version: 0.5.9", "", "DeepSeek-R1, DeepSeek-V3.1-NVFP4 (sglang 0.5.9), "),
        ("front_end_s: 0.06,", "front_end_s: 0.01,", "behind Dynamo's front end"),
        ("DeepSeek-R1", "DeepSeek-V3.2", "only "),
        ("family: sglang, version: 0.5.9", "family: vllm, version: 0.33.0", "only "),
        ("host: {front_end_s: 0.0624}", "", "section host"),
    ],
)
def test_disaggregated_servers_that_nobody_measured_have_none(old, new, reason):
    """Another version, front end or model: the line says what was measured."""
    pytest.importorskip("aiconfigurator_core", reason="pip install -e '.[aiconfigurator]'")
    text = APART.replace(old, new)
    assert text != APART
    found = confidence(text + CLOSED)
    assert reason in found.pop("no_interval")
    assert found == NOTHING


def test_text_of_an_interval_says_whose_it_is():
    """The first line what step times rest on, then the ends and the servers."""
    found = confidence(OPERATORS + CLOSED, latency_source="package")
    first, second, third = confidence_lines(found)
    assert first == "step times: operators measured on the GPU: package"
    assert second.startswith("90 % interval: mean TTFT ")
    assert third.startswith("    nearest of 798 measured servers: ")
    assert "of Qwen/Qwen3-32B, 16-bit weights, h100_sxm, vllm 0." in third
    assert third.endswith("; here another engine version")
    assert confidence_lines(confidence(LINEAR + OPEN)) == [
        "step times: a formula of the scenario: nothing is claimed"
    ]


@pytest.mark.parametrize(
    ("model", "architecture"),
    [
        ("Qwen/Qwen3-32B", "dense"),
        ("deepseek-ai/DeepSeek-R1", "experts, latent attention"),
        ("openai/gpt-oss-120b", "experts, windows"),
        ("Qwen/Qwen3.5-397B-A17B", "experts, states"),
    ],
)
def test_architecture_is_named_by_what_layers_consist_of(model, architecture):
    """A model whose layers are not known is like no other."""
    assert architecture_of(load_model_shape(model, Path())) == architecture
    assert architecture_of(None) == "not known"
    assert calibration().bounds.keys() == LACKS.keys()
