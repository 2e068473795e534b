"""`simulate contest` from end to end: reproducible, extended, with contestants that fail."""

import csv
import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.sweep.test_ray_cluster import StandIn

CONTEST = """\
contest:
  reference: fcfs
  contestants:
    fcfs: {scheduler.schedule_policy: fcfs}
    lpm: {scheduler.schedule_policy: lpm}
    vllm: {scheduler: {family: vllm, block_size: 16, num_gpu_blocks_override: 256}}
  curve: [fcfs, lpm]
  traffic: [own]
  loads: [0.8, 1.5]
  seeds: 3
"""
FILES = ("contest.json", "contest.csv", "contest.md", "report/index.html")
CLASSES = '''\
"""Policies that order the queue wrongly."""

from sim.sglang.policies.policy import CacheBlind


class Raises(CacheBlind):
    def order(self, waiting, view):
        if view.now_ns > 10**8:
            raise ValueError("no order")
        return list(waiting)


class AdmitsNone(CacheBlind):
    def order(self, waiting, view):
        return []


class AdmitsTwice(CacheBlind):
    def order(self, waiting, view):
        return [*waiting, *waiting]
'''


@pytest.fixture
def contest(scenario_with):
    """study.yaml with a contest of three."""
    return scenario_with(CONTEST)


def contents(folder):
    return [Path(folder, name).read_bytes() for name in FILES]


def read(folder):
    return json.loads(Path(folder, "contest.json").read_text(encoding="utf-8"))


def test_workers_ray_and_another_hash_seed_give_the_same(
    simulate, inline, python, contest, monkeypatch
):
    """In this process, by two workers of a process that hashes in another way, and on Ray."""
    here = simulate("contest", contest, "--out", "here")
    assert (here.code, len(here.err.splitlines())) == (0, 2)
    there = python("-m", "sim", "contest", contest, "--out", "there", "--jobs", "2")
    assert there.code == 0
    assert contents("there") == contents("here")
    assert there.out.replace("there", "here") == here.out

    # A stand-in for Ray, whose runs end in another order than they began.
    monkeypatch.setitem(sys.modules, "ray", StandIn())
    ended = simulate("contest", contest, "--out", "ray", "--executor", "ray")
    assert ended.code == 0
    assert contents("ray") == contents("here")


def test_one_more_contestant_runs_alone(simulate, inline, contest):
    """The others, and the search for the capacity, are those of the first contest."""
    simulate("contest", contest, "--out", "out", "--set", "contest.seeds=[1, 2, 3]")
    before, first = inline.num_run, read("out")
    more = 'contest.contestants.lof={"scheduler.schedule_policy":"lof"}'
    assert simulate("contest", contest, "--out", "out", "--set", more).code == 0
    assert inline.num_run - before == 2 * 3
    second = read("out")
    assert [one["name"] for one in second["contestants"]] == ["fcfs", "lpm", "vllm", "lof"]
    for old, new in zip(first["cells"], second["cells"], strict=False):
        assert (new["metrics"], new["point_files"]) == (old["metrics"], old["point_files"])
    simulate("contest", contest, "--out", "whole", "--set", more)
    assert contents("whole")[:2] == contents("out")[:2]


def test_each_row_can_be_run_again(simulate, inline, contest):
    """The command of a row, from contest.csv, gives the run of the first seed to the bit."""
    simulate("contest", contest, "--out", "out", "--set", "slo.ttft_ms=400")
    with Path("out", "contest.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 2
    for row, cell in zip(rows, read("out")["cells"], strict=True):
        again = json.loads(simulate(*shlex.split(row["command"])[1:], "--format", "json").out)
        stored = json.loads(Path("out", "points", cell["point_files"][0]).read_text())["summary"]
        stored.pop("contest")
        assert {name: again[name] for name in stored} == stored


def test_contest_shows_what_it_found(simulate, inline, contest):
    """A row for each contestant but the reference, at the load nearest to the capacity."""
    ended = simulate("contest", contest)
    lines = ended.out.splitlines()
    assert lines[0].startswith("study: 3 contestants, 1 kind of traffic, 2 loads, 3 seeds")
    assert max(map(len, lines[:-1])) <= 80
    assert any("at 0.8 of the capacity" in line for line in lines)
    assert {line.split()[0] for line in lines if line.startswith(("lpm", "vllm"))} == {
        "lpm", "vllm",
    }  # fmt: skip
    text = Path("study-contest", "contest.md").read_text(encoding="utf-8")
    assert text.count("<details>") == text.count("</details>") == 6
    assert "SLO: TTFT at most" in text
    assert "num_gpu_blocks_override: 256" in text
    assert len(text) < 65_536
    page = Path("study-contest", "report", "index.html").read_text(encoding="utf-8")
    assert "lpm against fcfs" in page
    assert "simulate run" in page
    assert len(list(Path("study-contest", "report").glob("*.png"))) == 2
    told = simulate("contest", contest, "--format", "json").out
    assert told == Path("study-contest", "contest.json").read_text(encoding="utf-8")


def test_contestants_that_fail_are_out(simulate, inline, contest):
    """The others go on; their cards and lines on stderr say why, and the exit code is 1."""
    Path("mine.py").write_text(CLASSES, encoding="utf-8")
    fails = {
        "Raises": "no order", "AdmitsNone": "order returned", "AdmitsTwice": "order returned",
    }  # fmt: skip
    more = [
        word
        for name in fails
        for word in (
            "--set", f'contest.contestants.{name}={{"scheduler.schedule_policy":"mine:{name}"}}',
        )
    ]  # fmt: skip
    ended = simulate("contest", contest, "--out", "out", *more)
    assert ended.code == 1
    lines = ended.err.splitlines()[-len(fails) :]
    for line, (name, reason) in zip(lines, fails.items(), strict=True):
        assert line.startswith(f"contest: {name} is out: --set contest.contestants.{name}=")
        assert "scheduler.schedule_policy" in line
        assert reason in line
        assert f"{name} is out of the contest" in ended.out
    found = read("out")
    assert [one["out"] is not None for one in found["contestants"]] == [False] * 3 + [True] * 3
    assert {cell["contestant"] for cell in found["cells"]} == {"fcfs", "lpm", "vllm"}
    simulate("contest", contest, "--out", "without")
    assert found["cells"][0]["metrics"] == read("without")["cells"][0]["metrics"]


def test_reference_that_fails_ends_the_contest(simulate, inline, contest):
    Path("mine.py").write_text(CLASSES, encoding="utf-8")
    raises = "contest.contestants.fcfs={scheduler.schedule_policy: 'mine:Raises'}"
    ended = simulate("contest", contest, "--set", raises)
    assert ended.code == 2
    last = ended.err.splitlines()[-1]
    assert last.startswith("simulate: study.yaml:")
    assert "contest.reference: fcfs failed under traffic own" in last
    assert not Path("study-contest", "contest.json").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("contest.reference=nobody", "reference nobody is not a contestant"),
        ("contest.traffic=[nothing]", "contest.traffic.0: unknown traffic 'nothing'"),
        ("slo.ttft=3", "unknown key (did you mean ttft_ms?)"),
        ("contest.contestants.lpm={scheduler.schedule_policy: 'no_such:Policy'}", "no module"),
        ("contest.seeds=-1", "must be at least 1"),
        ("contest=null", "has no contest section"),
        ("slo={tpot_ms: 0.001}", "keeps the SLO for at most"),
    ],
)
def test_bad_contest_is_refused(simulate, inline, contest, option, message):
    ended = simulate("contest", contest, "--set", option)
    assert ended.code == 2
    assert ended.out == ""
    last = ended.err.splitlines()[-1]
    assert message in last
    assert len(last) <= 300 + len("simulate: ")
    assert not Path("study-contest", "contest.json").exists()


def test_interrupted_contest_goes_on(simulate, inline, contest):
    """After Ctrl-C, the same command runs the rest, and ends with the same files."""
    simulate("contest", contest, "--out", "whole")
    num_all = inline.num_run
    inline.num_run, inline.num_before_ctrl_c = 0, num_all - 4
    assert simulate("contest", contest, "--out", "cut").code == 130
    inline.num_before_ctrl_c = None
    assert simulate("contest", contest, "--out", "cut").code == 0
    assert inline.num_run == num_all
    assert contents("cut") == contents("whole")


def test_run_says_that_it_leaves_out_the_contest(simulate, contest):
    assert "runs without its contest (see simulate contest)" in simulate("run", contest).err


def test_validate_checks_the_contest(simulate, contest):
    assert "a contest of 18 runs" in simulate("validate", contest).out
    ended = simulate("validate", contest, "--set", "contest.traffic=[nothing]")
    assert (ended.code, ended.out) == (2, "")


def test_recorded_trace_shows_nothing(simulate, inline, contest):
    """All its seeds are one run: a difference has no interval and no mark."""
    rows = [
        {"timestamp": 30 * n, "input_length": 100 + n, "output_length": 9, "hash_ids": [n % 5]}
        for n in range(60)
    ]
    Path("trace.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    trace = "{kind: trace, format: mooncake, path: trace.jsonl}"
    option = f"contest.traffic=[{{name: recorded, workload: {trace}}}]"
    assert simulate("contest", contest, "--out", "out", "--set", option).code == 0
    found = [
        one for cell in read("out")["cells"] for one in cell["differences"].values() if one["mean"]
    ]
    assert found
    assert {(one["low"], one["chance"], one["verdict"]) for one in found} == {
        (None, None, "none shown"),
    }  # fmt: skip
