"""`simulate plan` for the most load that a number of GPUs bears, and the front of what it tried."""

import csv
import json
from pathlib import Path

import pytest
import yaml

PLAN = """\
plan:
  objective: load
  min_slo_attainment: 0.9
  max_gpus: 3
  headroom_step: 0.1
  gpus:
    fast: {settings: {latency.step_s: 0.004}}
    slow: {}
"""
# An MI300X has no measured operators, so that no package is needed.
QUESTION = (
    "plan", "--model", "qwen2.5-0.5b", "--hardware", "mi300x", "--tp", "1", "--server", "sglang",
    "--prompt-tokens", "60", "--output-tokens", "4", "--ttft-ms", "80", "--percentile", "90",
    "--set", "workload.num_requests=20", "--set", "plan.seeds=[1]",
    "--set", "plan.headroom_step=0.5",
)  # fmt: skip
CLIENTS = (
    "workload={kind: clients, clients: 20, requests_per_client: 2,"
    " think_s: {kind: constant, value: 0}, prompt_tokens: {kind: constant, value: 9},"
    " output_tokens: {kind: constant, value: 9}}"
)


@pytest.fixture
def planned(scenario_with):
    return scenario_with(PLAN)


def results_in(folder):
    return json.loads(Path(folder, "results.json").read_text(encoding="utf-8"))


def attainment(simulate, file, settings):
    """What `simulate run` says with these settings."""
    options = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    ended = simulate("run", file, "--format", "json", *[o for s in options for o in ("--set", s)])
    return json.loads(ended.out)["slo_attainment"]


def test_plan_finds_the_most_load_that_the_gpus_bear(simulate, inline, planned):
    """Run again on its own: it meets the SLO, and a load one step larger does not."""
    ended = simulate("plan", planned, "--out", "out")
    assert ended.code == 0
    assert ended.out.startswith(
        "study: the most traffic that 3 GPUs bear: deployments that meet the SLO for 90 % of"
        " requests: 2 candidates, 1 seed each\n"
    )
    found = results_in("out")["deployments"]
    assert [one["verdict"] for one in found] == ["meets", "meets"]
    assert [one["gpu"] for one in found] == ["fast", "slow"]
    assert found[0]["load"] > found[1]["load"]
    for one in found:
        assert (one["num_gpus"], one["load_unit"]) == (3, "requests/s")
        rate, count = (
            one["settings"][f"workload.{key}"] for key in ("arrivals.rate_rps", "num_requests")
        )
        assert rate == one["load"]
        assert attainment(simulate, planned, one["settings"]) == one["slo_attainment"] >= 0.9
        more = {"workload.arrivals.rate_rps": rate * 1.1,
                "workload.num_requests": round(count * 1.1)}  # fmt: skip
        assert attainment(simulate, planned, one["settings"] | more) < 0.9


def test_plan_leaves_candidates_that_bear_less(simulate, inline, planned):
    """With one to show, the other is left as soon as it must bear less."""
    simulate("plan", planned, "--out", "all")
    num_all = inline.num_run
    ended = simulate("plan", planned, "--out", "one", "--set", "plan.num_shown=1")
    assert inline.num_run - num_all < num_all
    best, weaker = results_in("one")["deployments"]
    assert best["load"] == results_in("all")["deployments"][0]["load"]
    assert weaker["verdict"] == "weaker"
    assert weaker["load"] <= best["load"]
    assert "1 bear no more than those above:" in ended.out
    assert " requests/s or less" in ended.out


def test_plan_writes_the_front_and_everything_that_was_tried(simulate, inline, planned):
    """Also of a search for the least cost; nothing is run for it. A run that was stopped, because
    it misses the SLO, has no numbers and is not on the front.
    """
    cheapest = ("--set", "plan.objective=cost", "--set", "plan.rate_rps=50")
    for name, options in (("load", ()), ("cost", cheapest)):
        ended = simulate("plan", planned, *options, "--out", name)
        loads = results_in(name)["loads"]
        points = [json.loads(path.read_text()) for path in Path(name, "points").glob("*.json")]
        assert len(loads) == len({json.dumps(point["settings"]) for point in points})
        stopped = [one for one in loads if one["slo_attainment_at_most"] is not None]
        assert stopped
        for one in stopped:
            assert (one["meets"], one["on_front"], one["saturated"]) == (False, False, None)
            assert one["slo_attainment_at_most"] < 0.9
        front = [one for one in loads if one["on_front"]]
        assert front
        whole = [one for one in loads if one not in stopped]
        for one in whole:
            assert one["on_front"] == (
                not one["saturated"]
                and not any(
                    each["tokens_per_user"] >= one["tokens_per_user"]
                    and each["tokens_per_gpu"] >= one["tokens_per_gpu"]
                    for each in whole
                    if each is not one and not each["saturated"]
                )
            )
        with Path(name, "front.csv").open(encoding="utf-8", newline="") as file:
            assert len(list(csv.DictReader(file))) == len(front)
        assert (
            f"of {len(loads)} deployments and loads tried ({len(stopped)} stopped, as they miss the"
            " SLO)"
        ) in ended.out


def test_report_draws_the_front_of_a_plan(simulate, inline, planned):
    simulate("plan", planned, "--out", "out")
    assert simulate("report", "out").out.split() == [
        "out/report/index.html",
        "out/report/01-plan-front.svg",
        "out/report/01-plan-front.png",
    ]
    page = Path("out/report/index.html").read_text(encoding="utf-8")
    assert "Deployments and loads that no other beats" in page
    assert "the most traffic that 3 GPUs bear" in page


def test_plan_of_closed_loops_finds_the_most_clients(simulate, inline, planned):
    tight = ("--set", "slo={e2e_latency_ms: 80}", "--set", CLIENTS)
    assert simulate("plan", planned, *tight, "--out", "out").code == 0
    best = results_in("out")["deployments"][0]
    assert best["load_unit"] == "clients"
    assert best["load"] == best["settings"]["workload.clients"]


def test_plan_says_what_misses_the_slo_under_any_load(simulate, inline, planned):
    ended = simulate("plan", planned, "--set", "slo.ttft_ms=0.01")
    assert ended.code == 1
    assert "2 miss the SLO under any load:" in ended.out


def test_plan_without_a_file_asks_for_the_most_that_gpus_bear(simulate, inline):
    ended = simulate(*QUESTION, "--max-gpus", "2")
    assert ended.code == 0
    assert ended.out.startswith("Assumed: 20 or more requests with each seed,")
    section = yaml.safe_load(Path("plan-out/scenario.yaml").read_text(encoding="utf-8"))["plan"]
    assert (section["objective"], section["max_gpus"]) == ("load", 2)
    best, _ = results_in("plan-out")["deployments"]
    assert best["replicas"] == 2
    # Never fewer requests than were asked for.
    assert best["settings"]["workload.num_requests"] >= 20


def test_plan_without_a_file_limits_the_gpus_for_a_rate(simulate, inline):
    """Both given: the fewest GPUs, of those that are allowed."""
    ended = simulate(*QUESTION, "--max-gpus", "1", "--rate-rps", "100000")
    assert ended.code == 1
    assert results_in("plan-out")["deployments"][0]["replicas"] == 1


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("plan.max_gpus=null", "plan: objective load needs max_gpus"),
        (
            "workload={kind: bench, client: vllm, num_prompts: 4, input_len: 9, output_len: 9}",
            "plan.objective: this traffic (kind bench) cannot come faster or more slowly",
        ),
    ],
)
def test_plan_for_load_refuses(refused_bare, planned, override, line):
    assert line in refused_bare("plan", planned, "--set", override)


def test_plan_without_a_file_needs_a_load_or_gpus(refused_bare):
    assert refused_bare(*QUESTION) == "--rate-rps: is needed without FILE"
    assert refused_bare(*QUESTION, "--max-gpus", "0").startswith("--max-gpus: must be at least 1")


def shapes_of(folder):
    section = yaml.safe_load(Path(folder, "scenario.yaml").read_text(encoding="utf-8"))["plan"]
    return section["parallel"]


ROOFLINE = QUESTION[:5] + QUESTION[7:] + ("--rate-rps", "100")
ONE_HOST = [{"tp": 1}, {"tp": 2}, {"tp": 4}, {"tp": 8}]


def test_plan_without_a_file_spreads_a_dense_model_over_a_host(simulate, inline):
    assert simulate(*ROOFLINE).code == 0
    assert shapes_of("plan-out") == ONE_HOST


def test_plan_without_a_file_spreads_a_large_model_over_hosts(simulate, inline):
    """In stages, if no GPU that may be used has enough memory in one host."""
    large = [each if each != "qwen2.5-0.5b" else "deepseek-ai/DeepSeek-V3" for each in ROOFLINE]
    large[large.index("mi300x")] = "rtx-4090"
    simulate(*large)
    assert shapes_of("plan-out") == [*ONE_HOST, {"tp": 8, "pp": 2}, {"tp": 8, "pp": 4}]


def test_plan_without_a_file_tries_ranks_and_experts(simulate, inline):
    """Most of them are left by their step times, and one line says so."""
    pytest.importorskip("aiconfigurator_core.sdk.engine")
    ended = simulate(
        "plan", "--model", "Qwen/Qwen3-30B-A3B", "--hardware", "h200_sxm", "--server", "vllm",
        "--rate-rps", "20", "--prompt-tokens", "1000", "--output-tokens", "20",
        "--tpot-ms", "40", "--percentile", "90",
        "--set", "workload.num_requests=60", "--set", "plan.seeds=[1]", "--set", "plan.num_shown=1",
    )  # fmt: skip
    assert ended.code == 0
    shapes = shapes_of("plan-out")
    assert shapes[:4] == ONE_HOST
    assert {"dp": 8, "moe_ep": 8} in shapes
    found = results_in("plan-out")["deployments"]
    assert len(found) == 2 * len(shapes)
    left = [one for one in found if not one["is_simulated"]]
    assert len(left) > len(found) / 2
    assert all(one["cost"] >= found[0]["cost"] for one in left)
    assert (
        f"{len(left)} not simulated, because by step times they cost more; the best: " in ended.out
    )
