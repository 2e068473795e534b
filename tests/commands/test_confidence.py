"""Every answer says what its step times rest on, in the same words."""

import json
from html import unescape
from pathlib import Path

import pytest

import servetwin
from tests.confidence.test_confidence import CLOSED, OPERATORS

FORMULA = "step times: a formula of the scenario: nothing is claimed"
SWEEP = "sweep: {replicas: [1, 2]}\n"
TUNE = """\
tune:
  objective: goodput
  num_trials: 2
  ranges: {replicas: {kind: choice, values: [1, 2]}}
"""
FEW = CLOSED.replace("num_prompts: 64", "num_prompts: 8").replace("output_len: 1024",
                                                                  "output_len: 8")  # fmt: skip


@pytest.fixture
def operators(folder):
    """A scenario with step times of measured operators."""
    pytest.importorskip("aiconfigurator_core", reason="pip install -e '.[aiconfigurator]'")
    text = f"name: op\n{OPERATORS}{FEW}slo: {{ttft_ms: 300}}\n{SWEEP}{TUNE}"
    Path("op.yaml").write_text(text, encoding="utf-8")
    return "op.yaml"


def page_of(simulate, folder):
    assert simulate("report", folder).code == 0
    return unescape(Path(folder, "report", "index.html").read_text(encoding="utf-8"))


def test_every_command_says_what_step_times_rest_on(simulate, scenario_with):
    """Once, below its table; in JSON, on pages and in Python, too."""
    file = scenario_with(SWEEP + TUNE)
    options = {"run": ["--out", "run"], "sweep": ["--out", "sweep", "--jobs", "1"],
               "tune": ["--out", "tune", "--jobs", "1"]}  # fmt: skip
    for command, more in options.items():
        ended = simulate(command, file, *more)
        assert ended.code == 0
        assert ended.out.count(FORMULA) == 1
        assert "interval:" not in ended.out
        assert f">{FORMULA}</p>" in page_of(simulate, command)
    expected = {"basis": "a formula of the scenario: nothing is claimed", "rows": 0}
    swept = json.loads(Path("sweep/results.json").read_text())
    tuned = json.loads(Path("tune/results.json").read_text())
    rows = [*swept["settings"], *tuned["trials"]]
    assert [row["confidence"] for row in rows] == [expected] * 4
    results = servetwin.load("run"), servetwin.load("sweep"), servetwin.compare({"a": file})
    for result in results:
        assert repr(result).count(FORMULA) == result._repr_html_().count(FORMULA) == 1


def test_intervals_are_shown_where_servers_were_measured(simulate, operators):
    """A row for each setting of a sweep; those of the winner of a search."""
    ended = simulate("sweep", operators, "--jobs", "1", "--out", "sweep")
    assert "\n90 % intervals of a real server's means:\n" in ended.out
    assert "First row: nearest of 798 measured servers: 45 of Qwen/Qwen3-32B" in " ".join(
        ended.out.split()
    )
    settings = json.loads(Path("sweep/results.json").read_text())["settings"]
    for setting in settings:
        found, metrics = setting["confidence"], setting["metrics"]
        assert (found["rows"], found["level_pct"]) == (46, 90)
        assert found["mean_ttft_ms"]["low"] < metrics["mean_ttft_ms"]["mean"]
    assert "intervals of a real server's means</h2>" in page_of(simulate, "sweep")
    assert "intervals of a real server's means:" in repr(servetwin.load("sweep"))
    ended = simulate("tune", operators, "--jobs", "1", "--out", "tune")
    lines = [line for line in ended.out.splitlines() if line.startswith("90 % interval: ")]
    assert lines[0] in page_of(simulate, "tune")


def test_sure_search_is_judged_at_the_upper_ends(simulate, operators):
    """`--sure` is `tune.judged_by`; the results keep what was asked."""
    ended = simulate("tune", operators, "--jobs", "1", "--out", "tune")
    surely = simulate("tune", operators, "--jobs", "1", "--out", "tune", "--sure")
    key = simulate("tune", operators, "--jobs", "1", "--out", "tune",
                   "--set", "tune.judged_by=upper_end")  # fmt: skip
    assert key.out == surely.out != ended.out
    line = "At the upper ends of their intervals, the SLO attainment is "
    assert line in surely.out
    assert line in page_of(simulate, "tune")
    found = json.loads(Path("tune/results.json").read_text())
    assert (found["judged_by"], found["scenario"]["tune"]["judged_by"]) == ("upper_end",) * 2
    best = found["trials"][found["winner"]]
    low = best["confidence"]["slo_attainment"]["low"]
    [share] = best["judged"]["slo_attainment"]["by_seed"]
    assert share == low < best["metrics"]["slo_attainment"]["mean"]


@pytest.mark.parametrize("command", ["tune", "plan"])
def test_sure_search_without_its_section_is_one_line(simulate, scenario, command):
    """The line is that without the option."""
    ended, plain = (simulate(command, scenario, *more) for more in ([], ["--sure"]))
    assert (ended.code, ended.err) == (2, plain.err)
    assert f"has no {command} section" in ended.err


def test_sure_search_by_a_formula_is_as_simulated(simulate, scenario_with):
    """Nothing is claimed of such servers, and it says so."""
    file = scenario_with(TUNE)
    plain = simulate("tune", file, "--jobs", "1", "--out", "tune")
    surely = simulate("tune", file, "--jobs", "1", "--out", "tune", "--sure")
    told = "Judged as simulated: it has no interval of the SLO attainment.\n"
    assert told not in plain.out
    assert surely.out.replace(told, "") == plain.out


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"nearest": []}, "confidence.nearest: "),
        ({"mean_ttft_ms": {"low": 1}}, "confidence.mean_ttft_ms.high: missing"),
        ({"basis": "\u001b[31m"}, "confidence.basis: "),
    ],
)
def test_damaged_confidence_is_one_line(simulate, scenario, content, reason):
    """In a folder of a run; nothing of it reaches a terminal."""
    simulate("run", scenario, "--out", "run")
    path = Path("run/summary.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"confidence": content}))
    ended = simulate("report", "run")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert reason in ended.err
