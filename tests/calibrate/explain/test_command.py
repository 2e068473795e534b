"""`calibrate explain`: what it prints and writes for scenarios and logs, and what it refuses."""

import json
from pathlib import Path

import pytest

from calibrate.cli import main
from sim.scenario.load import load_scenario_text
from tests.calibrate.explain.test_planted_faults import SCENARIO, SLOWER
from tests.support.made_up_device import USUAL, serve

FLEET = """\
name: fleet
seed: 2
latency: {kind: linear, step_s: 0.004, per_prefill_token_s: 4.0e-05, per_decode_request_s: 5.0e-05,
  per_context_token_s: 2.0e-08}
workload:
  kind: synthetic
  num_requests: 100
  arrivals: {kind: poisson, rate_rps: 30}
  prompt_tokens: {kind: uniform, min: 50, max: 200}
  output_tokens: {kind: uniform, min: 10, max: 60}
  prefixes: {groups: 12, tokens: {kind: uniform, min: 800, max: 1600}, share_probability: 0.9}
scheduler: {page_size: 16, max_total_tokens: 8192, context_length: 4096, chunked_prefill_size: 512,
  max_running_requests: 32}
replicas: 3
router: ROUTER
"""


@pytest.fixture
def fleets(tmp_path):
    """The same fleet behind a router that knows the caches, and behind one that does not."""
    paths = []
    for router in ("kv-aware", "round-robin"):
        paths.append(tmp_path / f"{router}.yaml")
        paths[-1].write_text(FLEET.replace("ROUTER", router), encoding="utf-8")
    return [str(path) for path in paths]


def test_explain_scenarios_whose_router_lost_its_affinity(fleets, capsys):
    assert main(["explain", *fleets, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [cause["name"] for cause in found["causes"]] == ["router"]
    assert found["finished"] == [100, 100]
    assert found["causes"][0]["detail"] == "kv-aware -> round-robin"
    assert found["causes"][0]["effect_ms"]["ttft_ms"] > 0
    assert found["causes"][0]["effect_ms"]["p99_ttft_ms"] > 0
    assert set(found["unexplained_ms"].values()) == {0}


def test_explain_other_step_times_servers_and_front_ends(fleets, tmp_path, capsys):
    other = tmp_path / "other.yaml"
    text = FLEET.replace("ROUTER", "kv-aware").replace("replicas: 3", "replicas: 2")
    text = text.replace("kind: linear", "kind: linear, dp: 2")
    other.write_text(text.replace("step_s: 0.004", "step_s: 0.008") + "host: vllm-async\n")
    assert main(["explain", fleets[0], str(other), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    details = {cause["name"]: cause["detail"] for cause in found["causes"]}
    assert details["servers"] == "3 -> 2 of 2 ranks"
    assert {"front end", "prefill steps", "decode steps"} <= details.keys()
    assert details["decode steps"].startswith("latency.step_s 0.004 -> 0.008, latency.dp 1 -> 2")
    # Settings that follow from the ranks are taken over with them.
    assert found["unexplained_ms"]["ttft_ms"] == pytest.approx(0, abs=1e-6)


def test_explain_twin_beside_a_real_run_writes_what_it_prints(tmp_path, capsys):
    text = SCENARIO.format(seed=3)
    twin, log = tmp_path / "twin.yaml", tmp_path / "real.jsonl"
    twin.write_text(text.replace("step_s: 0,", "step_s: 0.003,"), encoding="utf-8")
    serve(log, load_scenario_text(text), SLOWER)
    folder = tmp_path / "why"
    assert main(["explain", str(twin), str(log), "--out", str(folder)]) == 0
    printed = capsys.readouterr().out
    document = json.loads((folder / "explanation.json").read_text(encoding="utf-8"))
    assert document["before"]["name"] == "twin.yaml"
    assert document["verdict"] in printed
    assert all(f"{cause['name']}: {cause['detail']}" in printed for cause in document["causes"])
    assert (folder / "causes.png").stat().st_size > 10_000


def test_explain_of_equal_runs_advises_to_serve_them_again(tmp_path, capsys):
    log = tmp_path / "run.jsonl"
    serve(log, load_scenario_text(SCENARIO.format(seed=3)), USUAL)
    assert main(["explain", str(log), str(log)]) == 0
    printed = capsys.readouterr().out
    assert "Both runs compute the same in every step." in printed
    assert "no difference between the runs was found" in printed
    assert "change every mean by less than 0.1 %: traffic" in printed
    assert "To know more, serve both again." in printed


@pytest.mark.parametrize(
    ("first_cause", "before", "after"),
    [
        ("traffic", "share_probability: 0.9", "share_probability: 0.0"),
        ("prefill steps", "step_s: 0.004", "step_s: 0.004, cold_start_s: 2"),
        ("max_running_requests", "max_running_requests: 32", "max_running_requests: 2"),
    ],
)
def test_explain_names_what_a_scenario_changed(tmp_path, capsys, first_cause, before, after):
    """Also what sizes and times of the requests do not show, and a part of a section."""
    paths = [tmp_path / "before.yaml", tmp_path / "after.yaml"]
    text = FLEET.replace("ROUTER", "round-robin").replace("replicas: 3", "replicas: 1")
    text = text.replace("max_total_tokens: 8192", "max_total_tokens: 65536")
    paths[0].write_text(text, encoding="utf-8")
    paths[1].write_text(text.replace(before, after), encoding="utf-8")
    assert main(["explain", *map(str, paths), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [cause["name"] for cause in found["causes"]][:1] == [first_cause]
    assert found["unexplained_ms"]["ttft_ms"] == pytest.approx(0, abs=1e-6)


def test_explain_sets_keys_of_one_run_alone(fleets, capsys):
    """One file is both runs; what --set says of both is no difference, and comes first."""
    both = ["--set", "replicas=2", "--set", "router=least-loaded"]
    options = ["--set-before", "replicas=3", "--set-after", "replicas=1"]
    assert main(["explain", fleets[0], fleets[0], "--format", "json", *both, *options]) == 0
    (cause,) = json.loads(capsys.readouterr().out)["causes"]
    assert (cause["name"], cause["detail"]) == ("servers", "3 -> 1")


def test_explain_sets_no_keys_of_a_log(fleets, tmp_path, capsys):
    log = tmp_path / "real.jsonl"
    assert main(["explain", fleets[0], str(log), "--set-after", "seed=2"]) == 2
    expected = f"calibrate: --set-after: {log} is a log; only keys of a scenario can be set\n"
    assert capsys.readouterr().err == expected


def test_explain_skips_the_first_requests_of_a_log(tmp_path, capsys):
    text = SCENARIO.format(seed=3)
    for name, times in (("before", USUAL), ("after", SLOWER)):
        serve(tmp_path / f"{name}.jsonl", load_scenario_text(text), times)
    logs = [str(tmp_path / f"{name}.jsonl") for name in ("before", "after")]
    means = []
    for skip in ([], ["--skip", "60"]):
        assert main(["explain", *logs, "--format", "json", *skip]) == 0
        means.append(json.loads(capsys.readouterr().out)["before"]["ttft_ms"])
    assert means[0] != means[1]
    assert main(["explain", *logs, "--set", "seed=2"]) == 2
    assert "--set: only with a scenario" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{FLEET}nonsense: 1\n", "nonsense"),
        (None, "no such file"),
    ],
)
def test_explain_refuses_with_one_line(fleets, tmp_path, capsys, text, reason):
    bad = tmp_path / "bad.yaml"
    if text is not None:
        bad.write_text(text.replace("ROUTER", "kv-aware"), encoding="utf-8")
    assert main(["explain", fleets[0], str(bad)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith(f"calibrate: {bad}")
    assert reason in error


def test_explain_refuses_the_log_of_a_simulation(fleets, tmp_path, capsys):
    log = tmp_path / "log.jsonl"
    log.write_text('{"kind": "meta", "schema": 1, "source": "simulate"}\n', encoding="utf-8")
    assert main(["explain", fleets[0], str(log)]) == 2
    assert Path(log).name in capsys.readouterr().err
