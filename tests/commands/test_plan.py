"""`simulate plan` from end to end: what it finds, how it is found again, and bad sections."""

import csv
import json
import shlex
from pathlib import Path

import pytest
import yaml

import sim.commands.running.sweeps
from sim.workers.process_pool import ProcessPool

PLAN = """\
plan:
  min_slo_attainment: 0.9
  rate_rps: 50
  max_replicas: 8
  headroom_step: 0.1
  gpus:
    fast: {price_per_hour: 3, settings: {latency.step_s: 0.004}}
    slow: {price_per_hour: 2}
  servers:
    - grid: {scheduler.max_running_requests: [2, 64]}
    - {family: vllm, settings: {scheduler.num_gpu_blocks_override: 256}}
"""
ROOFLINE = """\
name: study
model: qwen2.5-0.5b
hardware: h100-sxm
latency: {kind: roofline}
workload:
  kind: synthetic
  num_requests: 30
  arrivals: {kind: constant, rate_rps: 20}
  prompt_tokens: {kind: constant, value: 600}
  output_tokens: {kind: constant, value: 20}
scheduler: {page_size: 16}
slo: {ttft_ms: 60}
plan:
  min_slo_attainment: 0.9
  gpus: {h100-sxm: {}, h200-sxm: {}}
"""

PROGRAMS = {"vllm": "vllm serve", "sglang": "python -m sglang.launch_server"}


@pytest.fixture
def planned(scenario_with):
    """A study with a pool for every family."""
    return scenario_with(PLAN)


def results_in(folder):
    return json.loads(Path(folder, "results.json").read_text(encoding="utf-8"))


def attainment(simulate, file, settings, **changes):
    """What `simulate run` says with these settings."""
    options = [f"{key}={json.dumps(value)}" for key, value in {**settings, **changes}.items()]
    ended = simulate("run", file, "--format", "json", *[o for s in options for o in ("--set", s)])
    return json.loads(ended.out)["slo_attainment"]


def test_plan_deployments_meet_the_slo_and_one_replica_fewer_does_not(simulate, inline, planned):
    """Run again on their own, with the settings that were printed."""
    assert simulate("plan", planned, "--out", "out").code == 0
    met = [one for one in results_in("out")["deployments"] if one["verdict"] == "meets"]
    assert len(met) == 6
    assert any(one["replicas"] > 1 for one in met)
    for one in met[:5]:
        settings, fewer = one["settings"], one["replicas"] - 1
        assert attainment(simulate, planned, settings) == one["slo_attainment"] >= 0.9
        assert not fewer or attainment(simulate, planned, settings, replicas=fewer) < 0.9
        # A rate one step higher than the headroom is too much.
        share = 1.1 + one["headroom"]
        rate = {
            "workload.arrivals.rate_rps": 50 * share,
            "workload.num_requests": round(settings["workload.num_requests"] * share),
        }
        assert one["is_headroom_open"] == (one["headroom"] >= 1)
        assert one["is_headroom_open"] or attainment(simulate, planned, settings | rate) < 0.9


def test_plan_shows_the_cheapest_first_and_proves_the_others_dearer(simulate, inline, planned):
    """With one deployment to show, candidates are left as soon as they must cost more."""
    simulate("plan", planned, "--out", "all")
    num_all = inline.num_run
    ended = simulate("plan", planned, "--out", "one", "--set", "plan.num_shown=1")
    assert inline.num_run - num_all < num_all
    everything, one = results_in("all")["deployments"], results_in("one")["deployments"]
    costs = [found["cost"] for found in everything if found["verdict"] == "meets"]
    assert costs == sorted(costs)
    assert one[0]["cost"] == costs[0] == one[0]["num_gpus"] * (2 if one[0]["gpu"] == "slow" else 3)
    dearer = {(found["gpu"], found["family"]) for found in one if found["verdict"] == "dearer"}
    assert dearer
    assert "cost no less than those above:" in ended.out
    with Path("all", "results.csv").open(encoding="utf-8", newline="") as file:
        assert [row["gpu"] for row in csv.DictReader(file)] == [row["gpu"] for row in everything]


def test_plan_prints_a_command_that_runs_and_one_that_launches(simulate, inline, planned):
    """The first ends with the attainment of the table."""
    lines = simulate("plan", planned, "--set", "plan.seeds=[4]").out.splitlines()
    assert lines[0] == (
        "study: the cheapest deployments that meet the SLO for 90 % of requests at 50.00"
        " requests/s: 6 candidates, 1 seed each"
    )
    command = shlex.split(next(line for line in lines if line.startswith("simulate run")))
    alone = simulate(*command[1:], "--set", "seed=4", "--format", "json")
    best = results_in("study-plan")["deployments"][0]
    assert json.loads(alone.out)["slo_attainment"] == best["slo_attainment"]
    first, second = (line for line in lines if line.startswith(tuple(PROGRAMS.values())))
    other = "sglang" if best["family"] == "vllm" else "vllm"
    assert first.startswith(PROGRAMS[best["family"]])
    assert second.startswith(PROGRAMS[other])
    assert any(line.endswith(f", the cheapest with {other}:") for line in lines)


def test_plan_by_worker_processes_killed_and_resumed_gives_the_same(
    simulate, inline, planned, killed_after, points_in, monkeypatch
):
    """Nothing that finished is run again, and in the end the files have the same bytes."""
    few = ("--set", "plan.num_shown=1")
    whole = simulate("plan", planned, *few, "--out", "whole")
    num_whole = inline.num_run
    killed_after(3, "plan", planned, *few, "--out", "cut", "--jobs", "1")
    assert len(points_in("cut")) == 3
    assert simulate("plan", planned, *few, "--out", "cut") == whole
    assert inline.num_run == 2 * num_whole - 3
    monkeypatch.setattr(sim.commands.running.sweeps, "ProcessPool", ProcessPool)
    assert simulate("plan", planned, *few, "--out", "two", "--jobs", "2") == whole
    for name in ("results.json", "results.csv"):
        assert Path("cut", name).read_bytes() == Path("whole", name).read_bytes()
        assert Path("two", name).read_bytes() == Path("whole", name).read_bytes()


def test_plan_takes_gpus_from_the_table_of_a_roofline(simulate, inline, folder):
    """Without prices GPUs are counted; more memory bandwidth leaves more headroom."""
    Path("roofline.yaml").write_text(ROOFLINE, encoding="utf-8")
    assert simulate("plan", "roofline.yaml", "--out", "out").code == 0
    first, second = results_in("out")["deployments"]
    assert first["settings"]["hardware"] == first["gpu"]
    assert (first["cost"], second["cost"]) == (1, 1)
    assert first["headroom"] >= second["headroom"]


def test_plan_counts_the_gpus_of_all_stages(simulate, inline, folder):
    """Two stages are two GPUs, and a flag of the launch command."""
    Path("roofline.yaml").write_text(ROOFLINE, encoding="utf-8")
    one = ("--set", "plan.gpus={h100-sxm: {}}", "--set", "plan.pp=[2]")
    ended = simulate("plan", "roofline.yaml", *one, "--out", "out")
    (deployment,) = results_in("out")["deployments"]
    assert (deployment["num_gpus"], deployment["cost"], deployment["pp"]) == (2, 2, 2)
    assert "--pp-size 2" in ended.out


def test_plan_lists_what_cannot_run_with_its_reason(simulate, inline, folder):
    """A model that is too large for a GPU does not stop the others."""
    Path("roofline.yaml").write_text(ROOFLINE, encoding="utf-8")
    large = ("--set", "model=llama-3.1-70b", "--set", "plan.gpus={h100-sxm: {}, h200-sxm: {}}")
    large += ("--set", "scheduler.mem_fraction_static=0.97", "--set", "slo.ttft_ms=500")
    large += ("--set", "workload.arrivals.rate_rps=1")
    ended = simulate("plan", "roofline.yaml", *large)
    assert ended.code == 0
    lines = ended.out.splitlines()
    refused = lines[lines.index("1 cannot run:") + 1]
    assert refused.startswith("  h100-sxm, tp 1, sglang: ")
    assert "llama-3.1-70b does not fit" in refused


def test_plan_without_a_deployment_that_meets_the_slo(simulate, inline, planned):
    ended = simulate("plan", planned, "--set", "slo.ttft_ms=0.1")
    assert (ended.code, ended.out.splitlines()[1]) == (1, "No deployment meets the SLO.")
    assert "6 miss the SLO with any number of replicas:" in ended.out
    assert "with 8 replicas 0 of the first 11 requests kept it; stopped, as" in ended.out


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("slo={}", "min_slo_attainment: needs an slo section with a limit"),
        ("plan=null", "has no plan section"),
        ("plan.tp=[1, 2]", "latency of kind linear has no tp"),
        ("plan.gpus.fast.price_per_hour=null", "fast has no price_per_hour, other GPUs have one"),
        ("plan.servers.0.grid={seed: [1]}", "cannot be set by a plan"),
        ("plan.servers.0.grid={scheduler.chunk: [1]}", "plan: scheduler.chunk=1: unknown key"),
        ("plan.servers.1.family=trtllm", "family must be sglang or vllm, got trtllm"),
        ("plan.seeds=[1, 1]", "1 is given twice"),
        ("plan.min_slo_attainment=1.5", "min_slo_attainment"),
        ("plan.parallel=[{tp: 2}]", "plan.parallel.0.tp: latency of kind linear has no tp"),
        ("plan.apart={gpu_bandwidth_gb_s: 5}", "is called plan.disaggregated now"),
    ],
)
def test_plan_refuses_a_bad_section(refused_bare, planned, override, reason):
    """With one line that names file and key."""
    line = refused_bare("plan", planned, "--set", override)
    assert reason in line


CLIENTS = (
    "workload={kind: clients, clients: 20, requests_per_client: 2,"
    " think_s: {kind: constant, value: 0}, prompt_tokens: {kind: constant, value: 9},"
    " output_tokens: {kind: constant, value: 9}}"
)


def test_plan_refuses_a_rate_for_traffic_without_one(refused_bare, planned):
    """Clients send as fast as they are answered."""
    line = refused_bare("plan", planned, "--set", CLIENTS)
    assert line == (
        "study.yaml:25: plan.rate_rps: the rate of this traffic (kind clients) is not known"
        " beforehand: leave rate_rps out"
    )


def test_plan_of_closed_loops_adds_clients(simulate, inline, planned):
    """The headroom is the share of clients that may be added."""
    tight = ("--set", "plan.rate_rps=null", "--set", "slo={e2e_latency_ms: 80}", "--set", CLIENTS)
    tight += ("--set", "plan.max_headroom=5")
    assert simulate("plan", planned, *tight, "--out", "out").code == 0
    best = results_in("out")["deployments"][0]
    assert 0 <= best["headroom"] < 5
    options = best["settings"] | {"slo": {"e2e_latency_ms": 80}}
    for headroom, meets in ((best["headroom"], True), (best["headroom"] + 0.1, False)):
        more = [f"{key}={json.dumps(value)}" for key, value in options.items()]
        more = [CLIENTS, *more, f"workload.clients={round(20 * (1 + headroom))}"]
        ended = simulate(
            "run", planned, "--format", "json", *[o for text in more for o in ("--set", text)]
        )
        assert (json.loads(ended.out)["slo_attainment"] >= 0.9) == meets


def test_plan_of_measured_operators(simulate, inline, folder):
    """GPUs by the package's names; what cannot run for lack of data or of heads is listed."""
    pytest.importorskip("aiconfigurator_core.sdk.engine")
    operators = "{kind: aiconfigurator, system: h200_sxm}\nhost: vllm-async"
    text = ROOFLINE.replace("{kind: roofline}", operators)
    text = text.replace("qwen2.5-0.5b", "llama-3.1-8b").replace("ttft_ms: 60", "ttft_ms: 200")
    Path("operators.yaml").write_text(text, encoding="utf-8")
    ended = simulate(
        *("plan", "operators.yaml", "--set", "plan.gpus={h100_sxm: {}, h900: {}}"),
        *("--set", "plan.tp=[1, 3]", "--set", "plan.max_headroom=0.1"),
        *("--set", "plan.servers=[{}, {family: vllm}]", "--out", "out"),
    )
    found = results_in("out")["deployments"]
    assert ended.code == 0
    assert [(one["gpu"], one["tp"]) for one in found[:2]] == [("h100_sxm", 1)] * 2
    assert {one["settings"].get("latency.backend", "sglang") for one in found[:2]} == {
        "sglang", "vllm",
    }  # fmt: skip
    refused = [one for one in found if one["verdict"] == "cannot run"]
    assert [bool(one["reason"]) for one in refused] == [True] * 6
    launches = [one for one in ended.out.splitlines() if one.startswith(tuple(PROGRAMS.values()))]
    assert launches[0].startswith(PROGRAMS[found[0]["family"]])
    assert "\nstep times: operators measured on the GPU: " in ended.out
    assert "90 % interval: mean TTFT " in ended.out


# An MI300X has no measured operators, so that no package is needed.
QUESTION = {
    "--model": "qwen2.5-0.5b", "--hardware": "mi300x=2", "--tp": "1", "--server": "sglang",
    "--rate-rps": "100", "--prompt-tokens": "60", "--output-tokens": "4", "--ttft-ms": "900",
    "--percentile": "90",
}  # fmt: skip
SHORT = ("--set", "workload.num_requests=20", "--set", "plan.seeds=[1]")


def asked(**changes):
    given = QUESTION | {f"--{name.replace('_', '-')}": text for name, text in changes.items()}
    return [part for option, text in given.items() if text for part in (option, text)]


def test_plan_without_a_file_asks_with_options_alone(simulate, inline):
    """The scenario that it writes asks the same, and the answer is the same."""
    ended = simulate("plan", *asked(), *SHORT)
    assert ended.code == 0
    first, where, *answer = ended.out.splitlines()
    assert first.startswith("Assumed: 20 requests with each seed, Poisson arrivals,")
    assert where == "plan-out/scenario.yaml has all of it; --set changes it."
    again = simulate("plan", "plan-out/scenario.yaml", "--out", "again")
    assert again.out.splitlines() == answer
    assert results_in("again")["deployments"] == results_in("plan-out")["deployments"]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"model": ""}, "--model: is needed without FILE"),
        ({"ttft_ms": ""}, "--ttft-ms or --tpot-ms: is needed without FILE"),
        ({"rate_rps": "0"}, "--rate-rps: must be greater than 0, got 0.0"),
        ({"tp": "0"}, "--tp: plan.tp.0: must be at least 1, got 0"),
        ({"server": "tgi"}, "--server: unknown family 'tgi' (known: sglang, vllm)"),
        ({"hardware": "mi300x=x"}, "--hardware mi300x=x: the price must be a number"),
        (
            {"weights": "fp8"},
            "--weights: mi300x has no measured operators, so the model's own format is used",
        ),
    ],
)
def test_plan_names_the_option_that_is_wrong(refused_bare, changes, line):
    """Nothing is written."""
    assert refused_bare("plan", *asked(**changes)) == line
    assert not Path("plan-out").exists()


def test_plan_takes_a_file_or_a_question(refused_bare, planned):
    line = refused_bare("plan", planned, "--model", "llama-3.1-8b")
    assert line == "--model: goes without FILE; the key in FILE is model"


DISAGGREGATED = """\
plan:
  min_slo_attainment: 0.9
  rate_rps: 50
  max_replicas: 8
  gpus: {any: {}}
  disaggregated:
    gpu_bandwidth_gb_s: 10
    settings: {transfer.bytes_per_token: 1000, pools.decode.scheduler.max_running_requests: 64}
"""


def test_plan_tries_disaggregated_servers_beside_servers_that_do_both(
    simulate, inline, scenario_with
):
    """Both are found again with `simulate run`, and one server fewer of a sort does not do."""
    file = scenario_with(DISAGGREGATED)
    ended = simulate("plan", file, "--out", "out")
    assert ended.code == 0
    found = results_in("out")
    split, together = sorted(found["deployments"], key=lambda one: one["prefill"] is None)
    assert [one["verdict"] for one in (split, together)] == ["meets", "meets"]
    assert split["num_gpus"] == split["prefill"] + split["decode"]
    assert split["goodput_per_gpu"] > 0
    for one in (split, together):
        assert attainment(simulate, file, one["settings"]) == one["slo_attainment"] >= 0.9
    for side in ("prefill", "decode"):
        fewer = json.loads(json.dumps(split["settings"]))
        if split[side] > 1:
            fewer["pools"][side]["replicas"] -= 1
            assert attainment(simulate, file, fewer) < 0.9
    assert f"{split['prefill']} + {split['decode']}" in ended.out
    assert "Disaggregated servers cost" in ended.out


TOO_LARGE = """\
name: large
model: llama-3.1-70b
latency: {kind: roofline, tp: 4, mfu: 0.6, bandwidth_efficiency: 0.7}
hardware: h100-sxm
workload:
  kind: synthetic
  num_requests: 20
  arrivals: {kind: poisson, rate_rps: 2}
  prompt_tokens: {kind: constant, value: 200}
  output_tokens: {kind: constant, value: 10}
slo: {ttft_ms: 5000}
plan:
  min_slo_attainment: 0.5
  max_replicas: 2
  gpus: {h100-sxm: {}}
  tp: [1, 4]
  disaggregated: {gpu_bandwidth_gb_s: 10}
"""


def test_plan_says_which_disaggregated_servers_the_model_does_not_fit(simulate, inline):
    """A side that cannot be built is no reason not to try the others."""
    Path("large.yaml").write_text(TOO_LARGE)
    ended = simulate("plan", "large.yaml", "--out", "out")
    assert ended.code == 0
    found = results_in("out")["deployments"]
    assert [one["verdict"] for one in found if one["prefill"]] == ["meets"]
    # One server of one GPU, and all pairs with such a server.
    assert sum("does not fit" in (one["reason"] or "") for one in found) == 1 + 3


def test_plan_of_a_question_has_the_defaults_of_the_servers_on_each_gpu(simulate, inline, folder):
    """An L40S has smaller ones than an H100; other formats of weights are those of experts, too."""
    pytest.importorskip("aiconfigurator_core.sdk.engine")
    options = asked(model="Qwen/Qwen3-30B-A3B", server="vllm", hardware="h100_sxm", weights="fp8")
    assert simulate("plan", *options, "--hardware", "l40s", *SHORT, "--out", "out").code in {0, 1}
    scenario = yaml.safe_load(Path("out", "scenario.yaml").read_text(encoding="utf-8"))
    assert scenario["latency"]["quantization"] == {"gemm": "fp8", "moe": "fp8_block"}
    assert scenario["plan"]["servers"][0]["gpu_settings"] == {
        gpu: {"scheduler.max_num_batched_tokens": tokens, "scheduler.max_num_seqs": seqs}
        for gpu, tokens, seqs in (("h100_sxm", 8192, 1024), ("l40s", 2048, 256))
    }
    found = results_in("out")["deployments"]
    budgets = {one["settings"]["scheduler.max_num_batched_tokens"] for one in found}
    assert budgets == {8192, 2048}


def test_plan_takes_no_deployment_that_rejects_requests(simulate, inline, planned):
    """Nine of ten within the SLO would do, but nobody wants the tenth turned away."""
    longest = ("--set", "scheduler.context_length=60", "--set", "plan.servers=[{}]")
    ended = simulate("plan", planned, *longest, "--out", "out")
    assert "11 of the first 12 requests were rejected; stopped" in ended.out
    assert {one["verdict"] for one in results_in("out")["deployments"]} == {"misses"}
