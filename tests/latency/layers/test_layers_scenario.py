"""Kind layers in scenario files: runs, their outputs, and what `simulate validate` refuses."""

import json
from pathlib import Path

import pytest

from sim.cli import main

SCENARIO = """\
name: study
seed: 3
latency: {kind: layers, path: profiles, host_s: 0.001, host_per_request_s: 1e-5}
workload:
  kind: synthetic
  num_requests: 30
  arrivals: {kind: poisson, rate_rps: 40}
  prompt_tokens: {kind: uniform, min: 20, max: 300}
  output_tokens: {kind: uniform, min: 1, max: 60}
scheduler: {page_size: 16, max_total_tokens: 4096, chunked_prefill_size: 96}
"""
SCHEDULER = "{page_size: 16, max_total_tokens: 4096, chunked_prefill_size: 96}"
VLLM = (
    "{family: vllm, block_size: 16, num_gpu_blocks_override: 257, max_num_seqs: 12,"
    " max_num_batched_tokens: 96}"
)


@pytest.fixture
def scenario(tables, tmp_path, monkeypatch):
    """Writes study.yaml, changed, with a small LLMServingSim profile beside it."""
    tables("serving_sim").rename(tmp_path / "profiles")
    monkeypatch.chdir(tmp_path)

    def write(old="", new=""):
        assert old in SCENARIO
        Path("study.yaml").write_text(SCENARIO.replace(old, new), encoding="utf-8")
        return "study.yaml"

    return write


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("size: 96}", "size: 96, enable_mixed_chunk: true}"),
        ("size: 96}", "size: 96, disable_overlap_schedule: true}"),
        ("seed: 3", "seed: 3\nreplicas: 2"),
        ("path: profiles", "path: profiles, spread_correction: true"),
        (SCHEDULER, VLLM),
        (SCHEDULER, VLLM.replace("}", ", async_scheduling: false}")),
    ],
)
def test_scenario_of_layers_runs_the_same_step_by_step(scenario, capsys, old, new):
    """Runs of decode steps and single ones, also where steps leave the table."""
    path = scenario(old, new)
    told = []
    for log, *options in (("runs.jsonl",), ("steps.jsonl", "--no-fast-forward")):
        assert main(["run", path, "--decisions", log, "--check", *options]) == 0
        told.append(capsys.readouterr())
    assert Path("runs.jsonl").read_bytes() == Path("steps.jsonl").read_bytes()
    assert told[0].err == told[1].err
    assert "servetwin: warning: " in told[0].err
    assert "LLMServingSim profile of meta-llama/Llama-3.1-8B on RTX" in told[0].out


@pytest.mark.parametrize("overlap", ["false", "true"])
def test_scenario_of_layers_takes_host_time_in_every_step(scenario, capsys, overlap):
    """One request of 200 tokens: 200 steps of a millisecond more, overlapped or not.

    The step that overlap launches in vain is over after the last token.
    """
    one = (
        "workload.arrivals={kind: constant, rate_rps: 1}",
        "workload.num_requests=1",
        "workload.prompt_tokens={kind: constant, value: 90}",
        "workload.output_tokens={kind: constant, value: 200}",
        "latency.host_per_request_s=0",
        f"scheduler.disable_overlap_schedule={overlap}",
    )
    e2e_ms = []
    for host_s in (0.001, 0.002):
        options = [word for key in (*one, f"latency.host_s={host_s}") for word in ("--set", key)]
        assert main(["run", scenario(), "--format", "json", *options]) == 0
        e2e_ms.append(json.loads(capsys.readouterr().out)["mean_e2e_latency_ms"])
    assert e2e_ms[1] - e2e_ms[0] == pytest.approx(200, abs=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("path: profiles", "path: absent",
         "simulate: study.yaml:3: latency.path: absent: no such file or folder"),
        ("host_s: 0.001", "host: host.json",
         "simulate: study.yaml:3: latency.host_per_request_s: must not be given with latency.host"),
        ("path: profiles", "path: profiles, tp: 2",
         "simulate: profiles/tp2: no such folder (there are: tp1)"),
        ("path: profiles", "path: profiles, tps: 2",
         "simulate: study.yaml:3: latency.tps: unknown key (did you mean tp?)"),
        ("path: profiles, host_s: 0.001, host_per_request_s: 1e-5",
         "path: profiles, host: absent.json",
         "simulate: absent.json: cannot be read: No such file or directory"),
    ],
)  # fmt: skip
def test_scenario_of_layers_that_cannot_run_is_refused_in_one_line(
    scenario, capsys, old, new, line
):
    """By `simulate validate`, with exit code 2."""
    assert main(["validate", scenario(old, new)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [line]


def test_scenario_of_layers_that_cannot_be_corrected_is_refused_in_one_line(
    scenario, tables, capsys
):
    """Its table does not say how; the key stands on line 3."""
    tables("vidur")
    path = scenario("path: profiles,", "path: vidur, num_layers: 2, spread_correction: true,")
    assert main(["validate", path]) == 2
    assert capsys.readouterr().err == (
        "simulate: study.yaml:3: latency.spread_correction: needs a table with a skew_fit;"
        " this one has none\n"
    )


def test_scenario_of_layers_in_order_validates(scenario, capsys):
    """Without a model: meta.yaml names one."""
    assert main(["validate", scenario()]) == 0
    assert capsys.readouterr().out == "study.yaml: valid; 30 requests, 1 replica\n"
