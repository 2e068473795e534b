"""`simulate sweep` from end to end: killed, resumed, with bad points, on bad folders."""

import csv
import json
import sys
from pathlib import Path

import pytest

import sim.commands.running.sweeps
import sim.workers.choose
from sim.extras import how_to_install
from sim.workers.process_pool import ProcessPool

RESULTS = ("results.json", "results.csv", "results.parquet")
GRID = """\
sweep:
  scheduler.schedule_policy: [fcfs, lpm]
  seeds: [1, 2, 3]
"""


@pytest.fixture
def grid(scenario_with):
    return scenario_with(GRID)


def result_bytes(folder):
    return [Path(folder, name).read_bytes() for name in RESULTS]


def test_sweep_killed_and_resumed_is_the_undisturbed_sweep(
    simulate, inline, killed_after, points_in, scenario_with
):
    """SIGKILL at several moments: nothing that finished is lost or run again, and in the end the
    files are those of a sweep that nobody disturbed.
    """
    file = scenario_with("sweep:\n  replicas: [1, 2]\n  seeds: [1, 2, 3, 4]\n")
    simulate("sweep", file, "--out", "whole")
    kept = {}
    for num_points, jobs in ((1, 2), (4, 1)):
        killed_after(num_points, "sweep", file, "--out", "cut", "--jobs", jobs)
        before, kept = kept, points_in("cut")
        assert before.items() <= kept.items()
        assert not Path("cut", "results.json").exists()
    assert len(kept) == 5
    last = simulate("sweep", file, "--out", "cut")
    assert (last.code, last.err) == (0, "sweep: 8 points, 3 to run\n")
    assert kept.items() <= points_in("cut").items()
    assert len(points_in("cut")) == 8
    assert result_bytes("cut") == result_bytes("whole")
    assert not list(Path("cut", "points").glob(".*"))


def test_sweep_any_number_of_workers_gives_the_same(simulate, inline, points_in, grid, monkeypatch):
    """In this process, by one worker and by two: the same table, the same bytes."""
    here = simulate("sweep", grid, "--out", "here")
    monkeypatch.setattr(sim.workers.choose, "ProcessPool", ProcessPool)
    for jobs in ("1", "2"):
        ended = simulate("sweep", grid, "--out", jobs, "--jobs", jobs)
        assert ended == here == (0, here.out, "sweep: 6 points, 6 to run\n")
        assert result_bytes(jobs) == result_bytes("here")
        assert points_in(jobs).keys() == points_in("here").keys()


def test_sweep_prints_a_row_a_setting(simulate, inline, grid):
    """Seeds are folded into a mean and its interval; results.csv has a row a point."""
    ended = simulate("sweep", grid)
    lines = ended.out.splitlines()
    assert max(map(len, lines)) <= 80
    rows_of = [line for line in lines if line.startswith(("fcfs", "lpm"))]
    assert [line.split()[0] for line in rows_of] == ["fcfs", "lpm"] * 2
    assert [line.split()[1] for line in rows_of[:2]] == ["3", "3"]
    assert [line.count("±") for line in rows_of] == [4, 4, 2, 2]
    with Path("study-sweep", "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    settings = [(row["scheduler.schedule_policy"], row["seed"]) for row in rows]
    assert settings == [(policy, seed) for policy in ("fcfs", "lpm") for seed in "123"]
    alone = simulate("run", grid, "--set", "seed=2", "--format", "json")
    summary = json.loads(alone.out)
    assert all(
        rows[4][key] == str(summary[key]) for key in ("mean_ttft_ms", "simulated_steps", "duration")
    )
    assert "wall_seconds" not in rows[0]


def test_sweep_prints_json_that_is_results_json(simulate, inline, grid):
    """For programs: all points, and the settings folded."""
    ended = simulate("sweep", grid, "--format", "json", "--out", "out")
    assert ended.out == Path("out", "results.json").read_text()
    content = json.loads(ended.out)
    assert [setting["num_points"] for setting in content["settings"]] == [3, 3]
    assert len(content["points"]) == 6


def test_sweep_bad_point_is_listed_and_does_not_stop_the_rest(simulate, inline, scenario_with):
    """An unknown model shows when it is looked for: exit code 1, its place and its scenario."""
    file = scenario_with("sweep:\n  model: [null, nosuch]\n  scheduler.page_size: [16, 32]\n")
    ended = simulate("sweep", file, "--out", "out")
    assert ended.code == 1
    lines = [line.split() for line in ended.out.splitlines()]
    at = lines.index(next(line for line in lines if line[0].startswith("─"))) + 1
    assert [line[2] for line in lines[at : at + 4]] == ["1", "1", "0/1", "0/1"]
    _, third, fourth = ended.err.splitlines()
    assert third.startswith(
        'sweep: point 3 of 4 failed (model="nosuch", scheduler.page_size=16):'
        " study.yaml:24: sweep: model=\"nosuch\": unknown model 'nosuch'"
    )
    assert fourth.startswith("sweep: point 4 of 4 failed")
    stored = Path(third.rpartition("its scenario: ")[2].removesuffix(")"))
    assert json.loads(stored.read_text())["scenario"]["model"] == "nosuch"
    again = simulate("sweep", file, "--out", "out")
    assert again.err.splitlines()[0] == "sweep: 4 points, 2 to run"
    assert (again.code, again.out) == (1, ended.out)


def test_sweep_interrupted_keeps_what_is_finished(simulate, inline, grid):
    """Ctrl-C: 130, and the next sweep goes on from there."""
    inline.num_before_ctrl_c = 2
    ended = simulate("sweep", grid, "--out", "out")
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.splitlines()[1:] == [
        "sweep: 2 more points are stored; the same command runs the rest",
        "simulate: interrupted",
    ]
    inline.num_before_ctrl_c = None
    assert simulate("sweep", grid, "--out", "out").err == "sweep: 6 points, 4 to run\n"


def test_sweep_runs_again_what_is_not_stored_by_this_code(simulate, inline, grid, monkeypatch):
    """Nothing, unless it is asked for or the code has changed, which is counted."""
    simulate("sweep", grid, "--out", "out")
    assert simulate("sweep", grid, "--out", "out").err == "sweep: 6 points, 0 to run\n"
    assert simulate("sweep", grid, "--out", "out", "--fresh").err == "sweep: 6 points, 6 to run\n"
    monkeypatch.setattr(sim.commands.running.sweeps, "code_version", lambda: "9+next")
    ended = simulate("sweep", grid, "--out", "out")
    assert (
        ended.err
        == "sweep: 6 points, 6 to run; 6 stored by another version of the code are not used\n"
    )


def test_sweep_on_a_full_disk_keeps_earlier_points(simulate, inline, points_in, grid, monkeypatch):
    """One clear line about the file; what was stored is whole, and the sweep can go on."""
    write_text, written = Path.write_text, []

    def until_full(self, text, **options):
        written.append(self)
        if len(written) > 3:
            raise OSError(28, "No space left on device")
        return write_text(self, text, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", until_full)
        ended = simulate("sweep", grid, "--out", "out")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith(".json: cannot be written: No space left on device\n")
    assert len(points_in("out")) == 3
    assert simulate("sweep", grid, "--out", "out").err == "sweep: 6 points, 3 to run\n"


def test_sweep_into_a_folder_that_cannot_be_written_is_refused(
    refused_bare, inline, grid, monkeypatch
):
    """Before anything runs."""
    Path("out").mkdir()

    def read_only(**options):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    line = refused_bare("sweep", grid, "--out", "out")
    assert line == "out: cannot be written: Read-only file system"


def test_sweep_bad_section_is_refused_before_anything_runs(refused_bare, scenario_with):
    """One line, exit code 2, no folder made."""
    line = refused_bare("sweep", scenario_with("sweep: {}\n"))
    assert line == (
        "study.yaml:23: sweep: is empty: it needs key paths with lists of values, or seeds"
    )


BAD_OPTIONS = {
    ("--jobs", "0"): "'--jobs'",
    ("--executor", "slurm"): "'slurm' is not one of 'process', 'ray'",
    ("--ray-address", "auto"): "--ray-address: goes with --executor ray",
    ("--out", "study.yaml"): "study.yaml: is a file, expected a folder",
    ("--out", "a/b"): "a/b: its folder a does not exist",
}


@pytest.mark.parametrize(("options", "reason"), BAD_OPTIONS.items())
def test_sweep_bad_option_is_refused(refused_bare, grid, options, reason):
    """One line that says which."""
    assert reason in refused_bare("sweep", grid, *options)


def test_sweep_without_ray_says_how_to_get_it(refused_bare, grid, monkeypatch):
    """Ray is loaded when asked for."""
    monkeypatch.setitem(sys.modules, "ray", None)
    line = refused_bare("sweep", grid, "--executor", "ray")
    assert line == f"--executor ray needs Ray: {how_to_install('ray')}"


def test_run_of_a_sweep_runs_the_scenario_itself(simulate, scenario, scenario_with):
    """Without the sweep, which is said on stderr; validate checks every point."""
    plain = simulate("run", scenario, "--format", "json")
    file = scenario_with(GRID)
    ended = simulate("run", file, "--format", "json")
    assert ended.err == "servetwin: study.yaml: runs without its sweep (see simulate sweep)\n"
    without = [line for line in plain.out.splitlines() if "wall_seconds" not in line]
    assert [line for line in ended.out.splitlines() if "wall_seconds" not in line] == without
    assert simulate("validate", file).out.endswith("1 replica, a sweep of 6 points\n")
    bad = simulate("validate", scenario_with("sweep: {replicas: [0]}\n"))
    assert (bad.code, bad.out) == (2, "")
