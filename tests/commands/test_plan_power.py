"""`simulate plan` under a limit of kilowatts, with servers of known and of unknown power."""

import csv
import json
import re
from pathlib import Path

import pytest

from sim.latency.profile.format import Errors, Power, Range, load_profile, profile_text

NO_ERRORS = Errors(points=9, mape_pct=0, p50_pct=0, p95_pct=0, max_pct=0, total_pct=0, outliers=0)
POWER = Power(
    gpus=8,
    idle_w=1000,
    limit_w=5600,
    joules={"decode_s": 3000, "decode_doublings_s": 200, "prefill_s": 5000},
    idle_measured=True,
    sources=("power.csv",),
    windows=9,
    window_s=2,
    decode_rows=Range(low=1, high=8),
    clock_mhz=None,
    errors=NO_ERRORS,
)
# `frugal` draws a tenth of `mighty`, with the same step times; of `unread` nobody read the power.
PLAN = """\
name: study
seed: 1
latency: {kind: profile, path: mighty.json}
workload:
  kind: synthetic
  num_requests: 60
  arrivals: {kind: poisson, rate_rps: 6}
  prompt_tokens: {kind: constant, value: 60}
  output_tokens: {kind: constant, value: 12}
scheduler: {page_size: 1, max_total_tokens: 4000}
slo: {ttft_ms: 1500}
plan:
  min_slo_attainment: 0.9
  max_replicas: 6
  headroom_step: 0.25
  gpus:
    mighty: {settings: {latency.path: mighty.json}}
    frugal: {settings: {latency.path: frugal.json}}
    unread: {settings: {latency.path: unread.json}}
"""


@pytest.fixture
def planned(inline):
    profile = load_profile("example/tiny-cpu", Path())
    tenth = {name: joules / 10 for name, joules in POWER.joules.items()}
    frugal = POWER.model_copy(update={"idle_w": 100, "limit_w": 560, "joules": tenth})
    for name, power in (("mighty", POWER), ("frugal", frugal), ("unread", None)):
        text = profile_text(profile.model_copy(update={"power": power}))
        Path(f"{name}.json").write_text(text, encoding="utf-8")
    Path("study.yaml").write_text(PLAN, encoding="utf-8")
    return "study.yaml"


def deployments_in(folder):
    found = json.loads(Path(folder, "results.json").read_text(encoding="utf-8"))["deployments"]
    return {one["gpu"]: one for one in found}


def power_kw(simulate, file, settings):
    """What `simulate run` says with these settings."""
    options = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    ended = simulate("run", file, "--format", "json", *[o for s in options for o in ("--set", s)])
    return json.loads(ended.out)["mean_power_w"] / 1000


def test_deployments_that_draw_more_are_out_and_those_of_unknown_power_are_named(simulate, planned):
    ended = simulate("plan", planned, "--out", "out", "--set", "plan.max_kw=1")
    assert ended.code == 0
    assert "for 90 % of requests with at most 1.00 kW: 3 candidates" in ended.out
    found = deployments_in("out")
    verdicts = {gpu: one["verdict"] for gpu, one in found.items()}
    assert verdicts == {"mighty": "too much power", "frugal": "meets", "unread": "meets"}
    assert found["mighty"]["power_kw"] > 1 >= found["frugal"]["power_kw"]
    assert found["unread"]["power_kw"] is None
    assert "1 draw more than 1.00 kW:\n  mighty, tp 1, sglang: " in ended.out
    assert "Power not measured: row 2.\n" in ended.out
    mighty, frugal = found["mighty"], found["frugal"]
    assert mighty["power_kw"] == pytest.approx(10 * frugal["power_kw"])
    known = power_kw(simulate, planned, frugal["settings"])
    assert frugal["power_kw"] == pytest.approx(known)
    with Path("out/results.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["gpu"]: row["power_kw"] for row in rows}["unread"] == ""


def test_a_run_says_what_it_draws_if_that_was_measured(simulate, planned):
    text = simulate("run", planned).out
    assert re.search(r"^power W +[\d.,]+ +energy kWh +\S+$", text, re.MULTILINE)
    assert re.search(r"^J per output token +[\d.]+ +J per token +[\d.]+$", text, re.MULTILINE)
    unread = simulate("run", planned, "--set", "latency.path=unread.json").out
    assert "power" not in unread
    assert "J per" not in unread


def test_without_a_limit_nothing_is_said_of_power(simulate, planned):
    ended = simulate("plan", planned, "--out", "out")
    assert {one["verdict"] for one in deployments_in("out").values()} == {"meets"}
    assert " kW" not in ended.out
    assert "power" not in Path("out/results.csv").read_text(encoding="utf-8").partition("\n")[0]


def test_nothing_meets_a_limit_below_all(simulate, planned):
    only = "plan.gpus={frugal: {settings: {latency.path: frugal.json}}}"
    ended = simulate("plan", planned, "--out", "out", "--set", "plan.max_kw=0.01", "--set", only)
    assert ended.code == 1
    assert "No deployment meets the SLO within 0.01 kW.\n" in ended.out


def test_most_load_ends_where_the_power_does(simulate, planned):
    """One step more would keep the SLO, but draw too much."""
    load = ("plan.objective=load", "plan.max_gpus=1", "plan.headroom_step=0.1", "plan.max_kw=2.6")
    options = [option for value in load for option in ("--set", value)]
    ended = simulate("plan", planned, "--out", "out", *options)
    assert ended.code == 0
    found = deployments_in("out")
    assert found["mighty"]["load"] < found["frugal"]["load"] == found["unread"]["load"]
    assert found["mighty"]["power_kw"] <= 2.6
    settings = found["mighty"]["settings"]
    more = {
        "workload.arrivals.rate_rps": 1.1 * settings["workload.arrivals.rate_rps"],
        "workload.num_requests": round(1.1 * settings["workload.num_requests"]),
    }
    assert power_kw(simulate, planned, {**settings, **more}) > 2.6


def test_boards_of_unknown_servers_bound_what_they_draw(simulate, inline):
    """An MI300X has no measured power; its board may draw 750 W."""
    ended = simulate(
        "plan", "--model", "qwen2.5-0.5b", "--hardware", "mi300x", "--tp", "1",
        "--server", "sglang", "--rate-rps", "20", "--prompt-tokens", "60",
        "--output-tokens", "4", "--ttft-ms", "80", "--max-kw", "5", "--out", "out",
        "--set", "workload.num_requests=20", "--set", "plan.seeds=[1]",
    )  # fmt: skip
    assert ended.code == 0
    assert "Power not measured: row 1 (boards: at most 2.25 kW), row 2 (boards" in ended.out
    [row] = {(one["power_kw"], one["board_kw"]) for one in [*deployments_in("out").values()]}
    assert row == (None, 2.25)


@pytest.mark.parametrize("limit", ["0", "-1", "many", ".inf"])
def test_limit_that_is_none_is_refused(simulate, planned, limit):
    ended = simulate("plan", planned, "--out", "out", "--set", f"plan.max_kw={limit}")
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "plan.max_kw" in ended.err


def test_energy_with_drafts_is_that_of_single_steps(simulate, planned):
    """The rows of a log would have too little of the steps that they stand for."""
    drafts = {
        "scheduler.speculative_algorithm": "EAGLE",
        "scheduler.speculative_num_steps": 2,
        "acceptance": {"rate": 0.7},
        "latency.drafter_share": 0.1,
        "workload.output_tokens.value": 40,
    }
    sets = [o for key, value in drafts.items() for o in ("--set", f"{key}={json.dumps(value)}")]
    found = [
        json.loads(simulate("run", planned, "--format", "json", *sets, *more).out)
        for more in ([], ["--no-fast-forward"])
    ]
    for name in ("mean_power_w", "joules_per_token"):
        assert found[0][name] == found[1][name] > 0
