"""`simulate tune` from end to end: what it finds, killed, resumed, and with bad settings."""

import csv
import json
import sys
from pathlib import Path

import pytest

import sim.commands.running.sweeps
from sim.extras import how_to_install
from sim.workers.process_pool import ProcessPool

RESULTS = ("results.json", "results.csv")
# 48 settings of which one is much better than most: the pool is short, the SLO tight.
SMALL = """\
tune:
  objective: goodput
  num_trials: 20
  seeds: [1, 2]
  ranges:
    scheduler.schedule_policy: {kind: choice, values: [fcfs, lpm, lof]}
    scheduler.chunked_prefill_size: {kind: choice, values: [32, 64, 256, 1024]}
    scheduler.max_running_requests: {kind: int, min: 2, max: 32, step: 10}
"""
FEW = ("--set", "tune.num_trials=9")
LOAD = (
    *("--set", "workload.arrivals.rate_rps=60", "--set", "workload.num_requests=60"),
    *("--set", "slo={ttft_ms: 300, tpot_ms: 14}"),
)


@pytest.fixture
def small(scenario_with):
    return scenario_with(SMALL)


def result_bytes(folder):
    return [Path(folder, name).read_bytes() for name in RESULTS]


def results_in(folder):
    return json.loads(Path(folder, "results.json").read_text(encoding="utf-8"))


def best_of(folder):
    found = results_in(folder)
    return found["trials"][found["winner"]]["objective"]["mean"]


def test_tune_finds_the_best_of_the_grid_in_fewer_than_half_of_its_runs(simulate, inline, small):
    """20 trials of 48 settings: as good as trying them all, and better than most."""
    once = ("--set", "tune.seeds=[1]")
    assert simulate("tune", small, *LOAD, *once, "--out", "search").code == 0
    num_searched = inline.num_run
    whole = simulate("tune", small, *LOAD, *once, "--out", "grid", "--set", "tune.num_trials=49")
    found, grid = results_in("search"), results_in("grid")
    assert (found["method"], grid["method"]) == ("search", "grid")
    assert (len(found["trials"]), num_searched) == (20, 20)
    assert (len(grid["trials"]), inline.num_run - num_searched) == (49, 49)
    assert best_of("search") >= best_of("grid") > 0
    # Only one setting is best, and it is not the scenario's own.
    means = sorted(trial["objective"]["mean"] for trial in grid["trials"])
    assert means[len(means) * 3 // 4] < 0.95 * best_of("grid")
    assert grid["trials"][0]["objective"]["mean"] < 0.95 * best_of("grid")
    assert "the whole grid" in whole.out.splitlines()[0]


def test_tune_by_worker_processes_gives_the_same(simulate, inline, small, monkeypatch):
    """In this process and by two others: the same trials, the same bytes."""
    here = simulate("tune", small, *LOAD, *FEW, "--out", "here")
    monkeypatch.setattr(sim.commands.running.sweeps, "ProcessPool", ProcessPool)
    assert simulate("tune", small, *LOAD, *FEW, "--out", "there", "--jobs", "2") == here
    assert result_bytes("there") == result_bytes("here")


def test_tune_killed_and_resumed_is_the_undisturbed_search(
    simulate, inline, killed_after, points_in, small
):
    """SIGKILL: nothing that finished is run again, and in the end the files are the same."""
    simulate("tune", small, *LOAD, *FEW, "--out", "whole")
    killed_after(5, "tune", small, *LOAD, *FEW, "--out", "cut", "--jobs", "1")
    kept = points_in("cut")
    assert not Path("cut", "results.json").exists()
    before = inline.num_run
    simulate("tune", small, *LOAD, *FEW, "--out", "cut")
    assert inline.num_run - before == 18 - len(kept) == 13
    assert kept.items() <= points_in("cut").items()
    assert result_bytes("cut") == result_bytes("whole")


def test_tune_run_again_runs_nothing_unless_fresh(simulate, inline, small):
    """And gives the same."""
    first = simulate("tune", small, *LOAD, *FEW)
    assert inline.num_run == 18
    assert simulate("tune", small, *LOAD, *FEW) == first
    assert inline.num_run == 18
    assert simulate("tune", small, *LOAD, *FEW, "--fresh") == first
    assert inline.num_run == 36


def test_tune_own_setting_outside_of_the_ranges_is_tried_beside_them(
    simulate, inline, scenario_with
):
    """Trial 0 is always the scenario as it is: no search does worse."""
    section = SMALL.replace("[fcfs, lpm, lof]", "[random, lof]")
    simulate("tune", scenario_with(section), *LOAD, *FEW, "--out", "out")
    own = results_in("out")["trials"][0]
    assert own["settings"] == {
        "scheduler.schedule_policy": "lpm",
        "scheduler.chunked_prefill_size": 256,
        "scheduler.max_running_requests": 256,
    }
    alone = simulate("run", "study.yaml", *LOAD, "--set", "seed=2", "--format", "json")
    assert own["objective"]["by_seed"][1] == json.loads(alone.out)["request_goodput"]


def test_tune_prints_winner_certainty_front_and_command(simulate, inline, small):
    """In that order; the command stands alone on its line."""
    ended = simulate("tune", small, *LOAD, *FEW, "--set", "tune.seeds=[1, 2, 3]")
    assert (ended.code, ended.err) == (0, "tune: 9 trials, 27 points: a search of 48 settings\n")
    lines = ended.out.splitlines()
    assert lines[0] == (
        "study: most goodput, requests/s: 9 trials, 3 seeds each, a search of 48 settings"
    )
    assert lines[2].split() == ["winner", "runner-up", "as", "written"]
    found = results_in("study-tune")
    assert lines[4].split() == ["trial", str(found["winner"]), str(found["runner_up"]), "0"]
    assert lines[8].startswith("goodput requests/s ")
    assert lines[8].count("±") == 3
    assert sum(line.startswith("Winner minus") for line in lines) == 2
    winner = found["trials"][found["winner"]]["settings"]
    assert lines[-1].startswith('python -m sglang.launch_server --model-path "$MODEL" ')
    for key, value in winner.items():
        flag = key.removeprefix("scheduler.").replace("_", "-")
        assert f" --{flag} {value}" in lines[-1]
    assert found["launch"]["command"] == lines[-1]


def test_tune_prints_json_that_is_results_json(simulate, inline, small):
    """For programs; results.csv has a row a trial."""
    ended = simulate("tune", small, *LOAD, *FEW, "--format", "json", "--out", "out")
    assert ended.out == Path("out", "results.json").read_text()
    content = json.loads(ended.out)
    with Path("out", "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["trial"] for row in rows] == [str(number) for number in range(9)]
    assert [float(row["goodput"]) for row in rows] == [
        trial["objective"]["mean"] for trial in content["trials"]
    ]
    settings = {json.dumps(trial["settings"]) for trial in content["trials"]}
    assert len(settings) == 9


COST = """\
tune:
  objective: cost
  min_slo_attainment: 0.9
  num_trials: 6
  seeds: [1, 2, 3]
  ranges:
    replicas: {kind: int, min: 1, max: 5}
"""


def test_tune_cost_is_the_least_that_meets_the_slo(simulate, inline, scenario_with):
    """Two replicas are too few, three do; a price makes it money."""
    file = scenario_with(COST)
    ended = simulate("tune", file, *LOAD, "--out", "out")
    found = results_in("out")
    shares = [trial["metrics"]["slo_attainment"]["mean"] for trial in found["trials"]]
    costs = [trial["objective"]["mean"] for trial in found["trials"]]
    assert costs == [1, 2, 3, 4, 5]
    assert [trial["meets"] for trial in found["trials"]] == [share >= 0.9 for share in shares]
    least = min(cost for cost, share in zip(costs, shares, strict=True) if share >= 0.9)
    assert found["trials"][found["winner"]]["objective"]["mean"] == least > 1
    assert ended.code == 0
    assert f"without a flag in SGLang: replicas={least:.0f}" in ended.out
    priced = simulate("tune", file, *LOAD, "--out", "out", "--set", "tune.price_per_hour=2.5")
    assert f" {2.5 * least:.2f} " in priced.out


def test_tune_that_meets_nothing_says_what_comes_nearest(simulate, inline, scenario_with):
    """No winner, no command, exit code 1."""
    ended = simulate("tune", scenario_with(COST), "--set", "slo.ttft_ms=1", "--out", "out")
    assert ended.code == 1
    assert "No setting that was tried attains the SLO for 90 % of requests; trial " in ended.out
    assert "nearest" in ended.out
    assert "sglang" not in ended.out
    assert results_in("out")["winner"] is None


def test_tune_bad_settings_are_listed_and_do_not_stop_the_rest(simulate, inline, scenario_with):
    """Values that contradict each other are expected; a point that fails makes exit code 1."""
    ranges = """\
tune:
  objective: goodput
  num_trials: 9
  ranges:
    scheduler.page_size: {kind: choice, values: [16, 48]}
    model: {kind: choice, values: [null, nosuch]}
"""
    ended = simulate("tune", scenario_with(ranges), "--out", "out")
    statuses = [trial["status"] for trial in results_in("out")["trials"]]
    assert statuses == ["done", "failed", "contradiction", "contradiction"]
    _, first, second, third = ended.err.splitlines()
    assert first.startswith(
        'tune: trial 1 failed (scheduler.page_size=16, model="nosuch"): study.yaml:28: tune:'
        " model=\"nosuch\": unknown model 'nosuch'"
    )
    stored = Path(first.rpartition("its scenario: ")[2].removesuffix(")"))
    assert json.loads(stored.read_text())["scenario"]["model"] == "nosuch"
    assert second == (
        "tune: trial 2 is not valid (scheduler.page_size=48, model=null): study.yaml:27: tune:"
        " scheduler.page_size=48: scheduler: chunked_prefill_size 256 is not a multiple of"
        " page_size 48"
    )
    assert third.startswith("tune: trial 3 is not valid")
    assert ended.code == 1
    only_bad = ranges.replace("[null, nosuch]", "[null]")
    assert simulate("tune", scenario_with(only_bad), "--out", "out").code == 0


def test_tune_outside_of_measured_step_times_is_warned_of(
    simulate, inline, scenario_with, monkeypatch
):
    """A winner that nobody measured is not to be trusted without a look."""

    def run_point(work, read_trace):
        loaded = work.loaded
        summary = {"request_goodput": float(loaded.scenario.replicas), "slo_attainment": 1.0}
        summary |= dict.fromkeys(("mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms"), 1.0)
        summary["output_throughput"] = 1.0
        is_far = loaded.scenario.replicas > 2
        return summary | ({"left_range": "3 steps"} if is_far else {})

    monkeypatch.setattr(sim.commands.running.sweeps, "run_point", run_point)
    file = scenario_with(COST.replace("cost", "goodput"))
    warning = "tune: warning: 3 trials left the range in which their step times were measured, {};"
    assert warning.format("the winner too") in simulate("tune", file, "--out", "a").err
    near = scenario_with(COST)
    assert warning.format("not the winner") in simulate("tune", near, "--out", "b").err


def test_tune_interrupted_keeps_what_is_finished(simulate, inline, points_in, small):
    """Ctrl-C: 130, and the next search goes on from there to the same files."""
    simulate("tune", small, *LOAD, *FEW, "--out", "whole")
    before = inline.num_run
    inline.num_before_ctrl_c = before + 4
    ended = simulate("tune", small, *LOAD, *FEW)
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.splitlines()[1:] == [
        "tune: 4 more points are stored; the same command runs the rest",
        "simulate: interrupted",
    ]
    kept = points_in("study-tune")
    assert len(kept) == inline.num_run - before == 4
    inline.num_before_ctrl_c = None
    assert simulate("tune", small, *LOAD, *FEW).code == 0
    assert inline.num_run - before == 18
    assert kept.items() <= points_in("study-tune").items()
    assert result_bytes("study-tune") == result_bytes("whole")


def test_tune_shares_points_with_sweeps(simulate, inline, small):
    """A point is a scenario, whoever asked for it."""
    simulate("tune", small, *LOAD, "--set", "tune.num_trials=1", "--out", "out")
    sweep = ("--set", "sweep={seeds: [1, 2, 3]}")
    assert simulate("sweep", small, *LOAD, *sweep, "--out", "out").err == (
        "sweep: 3 points, 1 to run\n"
    )


def test_tune_without_optuna_says_how_to_get_it(refused_bare, simulate, inline, small, monkeypatch):
    """Only a search needs it: a grid does not."""
    monkeypatch.setitem(sys.modules, "optuna", None)
    line = refused_bare("tune", small)
    assert line == f"a search needs Optuna: {how_to_install('tune')}"
    grid = "tune.ranges={replicas: {kind: int, min: 1, max: 2}}"
    assert simulate("tune", small, *LOAD, "--set", grid).code == 0


BAD_OPTIONS = {
    ("--jobs", "0"): "'--jobs'",
    ("--out", "study.yaml"): "study.yaml: is a file, expected a folder",
    ("--set", "tune=null"): "study.yaml:1: has no tune section",
}


@pytest.mark.parametrize(("options", "reason"), BAD_OPTIONS.items())
def test_tune_bad_option_is_refused(refused_bare, small, options, reason):
    """One line that says which, and no folder made."""
    assert reason in refused_bare("tune", small, *options)


def test_tune_document_shows_the_shipped_scenario(simulate):
    """Which is in order."""
    root = Path(__file__).parents[2]
    document = (root / "docs" / "how-to" / "tune.md").read_text(encoding="utf-8")
    shown = document.split("```yaml\n")[1].split("```")[0]
    shipped = root / "scenarios" / "tune.yaml"
    assert shipped.read_text(encoding="utf-8").endswith(shown)
    assert simulate("validate", shipped).out.endswith("a search of 32 trials\n")


def test_run_and_validate_know_of_the_search(simulate, small):
    """`run` leaves it out and says so, `validate` checks it."""
    ended = simulate("run", small, "--format", "json")
    assert ended.err == "servetwin: study.yaml: runs without its tune (see simulate tune)\n"
    assert simulate("validate", small).out.endswith("1 replica, a search of 20 trials\n")
    bad = simulate("validate", small, "--set", "tune.ranges.replicas={kind: int, min: 0, max: 1}")
    assert (bad.code, bad.out) == (2, "")


def test_tune_keeps_percentiles_within_their_limits(simulate, inline, small):
    """The winner's are; without a setting that meets them all, the nearest is said."""
    free = simulate("tune", small, *LOAD, *FEW, "--out", "free")
    waits = sorted(one["metrics"]["p99_ttft_ms"]["mean"] for one in results_in("free")["trials"])
    limits = {"p99_tpot_ms": 1000.0, "p99_ttft_ms": waits[3]}
    only = ("--set", f"tune.constraints={json.dumps(limits)}")
    ended = simulate("tune", small, *LOAD, *FEW, *only, "--out", "limited")
    found = results_in("limited")
    assert found["constraints"] == limits
    metrics = found["trials"][found["winner"]]["metrics"]
    assert metrics["p99_tpot_ms"]["mean"] <= 1000
    assert metrics["p99_ttft_ms"]["mean"] <= waits[3]
    assert "p99 TPOT (ms) up to 1,000" in ended.out
    assert "p99 TPOT (ms) up to" not in free.out
    none = simulate("tune", small, *LOAD, *FEW, "--set", "tune.constraints={p99_ttft_ms: 0.1}")
    assert (none.code, "No setting that was tried meets every condition" in none.out) == (1, True)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("p99_tftt_ms", "unknown metric 'p99_tftt_ms' (did you mean p99_ttft_ms?)"),
        ("output_throughput", "is not better when it is lower"),
        ("hot.p95_ttft_ms", "unknown metric"),
    ],
)
def test_tune_refuses_a_limit_of_what_it_cannot_limit(simulate, small, name, reason):
    """One line names the key."""
    ended = simulate("tune", small, *LOAD, "--set", f"tune.constraints={{{name}: 5}}")
    assert ended.code == 2
    assert reason in ended.err


def test_report_draws_a_search(simulate, inline, small):
    """Its progress, each key, what it costs in TTFT; and the settings with how sure they are."""
    simulate("tune", small, *LOAD, *FEW, "--set", "tune.constraints={p99_tpot_ms: 14}")
    ended = simulate("report", "study-tune")
    assert ended.code == 0
    names = [Path(line).name for line in ended.out.splitlines()]
    assert names[1::2] == ["01-tune-trials-goodput.svg", "02-tune-keys-goodput.svg",
                           "03-tune-goodput-p99-ttft-ms.svg"]  # fmt: skip
    page = Path("study-tune/report/index.html").read_text(encoding="utf-8")
    for words in ("The best settings", "runner-up", "Figure 3.", "p99 TPOT (ms) up to 14.00"):
        assert words in page, words
    assert simulate("report", "study-tune").out == ended.out
    assert Path("study-tune/report/index.html").read_text(encoding="utf-8") == page


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ({"trials": []}, "trials"),
        ({"objective": "fame"}, "objective"),
        ({"keys": ["a"]}, "trials.0.settings: lacks a"),
        ({"seeds": [1]}, "trials.0: must have 1 values"),
        ({"constraints": {"p99_ttft_ms": 0}}, "constraints.p99_ttft_ms"),
    ],
)
def test_report_of_a_damaged_search_says_how_to_mend_it(simulate, inline, small, damage, reason):
    """One line; nothing is written."""
    simulate("tune", small, *LOAD, "--set", "tune.num_trials=2")
    path = Path("study-tune/results.json")
    path.write_text(json.dumps(results_in("study-tune") | damage))
    ended = simulate("report", "study-tune")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert reason in ended.err
    assert "simulate tune with the same --out writes it anew" in ended.err
    assert not Path("study-tune/report").exists()
