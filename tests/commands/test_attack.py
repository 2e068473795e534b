"""`simulate contest --attack` from end to end."""

import csv
import json
import shlex
from pathlib import Path

import pytest

FILES = ("attack.jsonl", "attack.md", "attack.json")


@pytest.fixture
def contest(scenario_with):
    """study.yaml with a contest of two."""
    return scenario_with("""\
contest:
  reference: fcfs
  contestants:
    fcfs: {scheduler.schedule_policy: fcfs}
    lpm: {scheduler.schedule_policy: lpm}
  traffic: [own]
""")


def attack(simulate, contest, *words):
    return simulate("contest", contest, "--attack", "lpm", "--trials", "12", *words)


def test_attack_writes_a_trace_that_both_serve_again(simulate, contest):
    """The commands of attack.json give the latencies that it names."""
    ended = attack(simulate, contest, "--out", "out")
    assert ended.code == 0
    assert ended.out.startswith("attack on lpm, beside fcfs: ")
    found = json.loads(Path("out", "attack.json").read_text(encoding="utf-8"))
    assert len(Path("out", "attack.jsonl").read_text().splitlines()) == found["num_requests"]
    for name, told in (("lpm", "here_s"), ("fcfs", "there_s")):
        words = shlex.split(found["commands"][name])[1:]
        assert simulate(*words, "--requests", f"{name}.csv").code == 0
        with Path(f"{name}.csv").open(newline="", encoding="utf-8") as file:
            rows = {row["rid"]: row for row in csv.DictReader(file)}
        latency_ms = float(rows[found["victim"]["rid"]]["e2e_latency_ms"])
        assert latency_ms == pytest.approx(1e3 * found["victim"][told])


def test_attack_gives_the_same_again_and_as_json(simulate, contest):
    attack(simulate, contest, "--out", "once")
    again = attack(simulate, contest, "--out", "again", "--format", "json")
    once = [Path("once", name).read_text(encoding="utf-8") for name in FILES]
    assert [
        Path("again", name).read_text(encoding="utf-8").replace("again/", "once/") for name in FILES
    ] == once
    assert again.out.replace("again/", "once/") == once[2]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--attack", "lpn"), "--attack: unknown contestant 'lpn' (did you mean lpm? known: lpm)"),
        (("--attack", "fcfs"), "--attack: unknown contestant 'fcfs' (known: lpm)"),
        (("--trials", "5"), "--trials: goes with --attack only"),
    ],
)
def test_attack_refuses_what_it_cannot_do(simulate, contest, words, reason):
    ended = simulate("contest", contest, *words)
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert reason in ended.err
    assert not Path("study-attack").exists()
