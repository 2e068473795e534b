"""The Python API: what it takes, what it returns, how it looks, and how it fails."""

import builtins
import json
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest

import servetwin as st
from sim.cli import main

REPOSITORY = Path(__file__).parents[2]
SMOKE = REPOSITORY / "scenarios" / "smoke.yaml"
FEW = {"workload.num_requests": 20, "workload.arrivals.rate_rps": 60}
SWEEP = FEW | {"sweep": {"scheduler.schedule_policy": ["fcfs", "lpm"], "replicas": [1, 2]}}


class Policy(StrEnum):
    FCFS = "fcfs"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def result():
    return st.run(SMOKE, FEW)


def test_run_jobs_give_the_same_result(result):
    """Two processes share the replicas."""
    settings = FEW | {"replicas": 3}
    one, two = st.run(SMOKE, settings), st.run(SMOKE, settings, jobs=2)
    assert without_time(one.summary) == without_time(two.summary)
    assert one.requests.equals(two.requests)
    with pytest.raises(st.InputError, match=r"^jobs: must be at least 1, got 0$"):
        st.run(SMOKE, FEW, jobs=0)


def without_time(summary):
    return {name: value for name, value in summary.items() if name != "wall_seconds"}


def test_every_name_loads_when_it_is_used():
    code = (
        "import servetwin as st, sys; heavy = {'numpy', 'pandas', 'matplotlib', 'pydantic'};"
        "print(heavy & set(sys.modules)); print([getattr(st, name) for name in st.__all__] != [],"
        "{'pandas', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["set()", "True set()"]
    assert dir(st) == sorted(st.__all__)
    with pytest.raises(AttributeError, match="no attribute 'runs'"):
        _ = st.runs


def test_paths_dicts_and_objects_are_the_same_scenario(result, capsys):
    """And the summary is that of the command line."""
    scenario = st.load(SMOKE)
    options = [f"--set={key}={value}" for key, value in FEW.items()]
    assert main(["run", str(SMOKE), *options, "--format", "json"]) == 0
    printed = without_time(json.loads(capsys.readouterr().out))
    numpy_settings = {key: np.int64(value) for key, value in FEW.items()}
    for source, settings in (
        (str(SMOKE), FEW), (scenario.data, numpy_settings), (scenario.change(FEW), None),
        (scenario, FEW), (scenario.loaded, FEW),
    ):  # fmt: skip
        found = st.run(source, settings)
        assert without_time(found.summary) == without_time(result.summary) == printed
    assert st.load(result.scenario).data == result.scenario
    assert st.load(SMOKE, {"scheduler.schedule_policy": Policy.FCFS}).data["scheduler"]


def test_paths_of_a_dict_are_from_the_current_folder(monkeypatch):
    data = st.load(SMOKE).data
    data["workload"] = {"kind": "trace", "format": "mooncake", "path": Path("mine.jsonl")}
    Path("mine.jsonl").write_text(
        json.dumps({"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [1]})
    )
    assert st.run(data).summary["completed"] == 1
    again = st.run(SMOKE, {"workload": data["workload"]})
    assert again.summary["completed"] == 1


@pytest.mark.parametrize(
    ("settings", "ending"),
    [
        ({"scheduler.chunked_prefill_size": -5}, "must be -1 (off) or at least 1, got -5"),
        ({"nokey": 1}, "--set nokey=1: unknown key"),
        ({"seed": float("nan")}, "--set: seed: nan is not a finite number"),
        ({"seed": 2**63}, "--set: seed: is too large: whole numbers end at 2**63 - 1"),
        ({"seed": object()}, "--set: seed: must be a value that YAML has, got object"),
        ({"workload": {1: 2}}, "--set: workload: keys must be text, got 1"),
        ({"name": "\udc80"}, "--set: name: a character here is not allowed in text"),
        ({"model": "x" * 400}, "(give the path of its config.json)"),
    ],
)
def test_errors_are_one_line(settings, ending):
    with pytest.raises(st.InputError) as caught:
        st.run(SMOKE, settings)
    assert ending in str(caught.value)
    assert len(str(caught.value)) <= 300


def test_errors_are_those_of_the_command_line(capsys):
    for file, key, value in ((SMOKE, "scheduler.page_size", 0), ("none.yaml", "seed", 1)):
        assert main(["run", str(file), f"--set={key}={value}"]) == 2
        with pytest.raises(st.InputError) as caught:
            st.run(file, {key: value})
        assert capsys.readouterr().err == f"simulate: {caught.value}\n"
    data = st.load(SMOKE).data | {"replicas": 0}
    with pytest.raises(st.InputError, match=r"^scenario: replicas: must be at least 1, got 0$"):
        st.run(data)
    with pytest.raises(st.InputError, match="must be a path, a mapping or a Scenario, got int"):
        st.run(3)


def test_results_fill_at_most_a_screen(result):
    found = st.sweep(SMOKE, SWEEP, jobs=1)
    for shown in (result, found, st.compare([result, result]), st.load(SMOKE)):
        lines = repr(shown).replace(str(SMOKE), "smoke.yaml").splitlines()
        assert len(lines) <= 30
        assert max(map(len, lines)) <= 100
        assert "<table>" in shown._repr_html_() or "<pre>" in shown._repr_html_()


def test_names_in_notebooks_are_text():
    evil = {"name": "<img src=x onerror=alert(1)>", "workload.num_requests": 3}
    ran = st.run(SMOKE, evil)
    for shown in (ran, st.compare([ran]), st.load(SMOKE, evil)):
        assert "<img" not in shown._repr_html_()


def test_frames_have_a_row_for_each(result):
    assert len(result.requests) == 20
    assert result.steps["num_steps"].sum() == result.summary["simulated_steps"]
    assert len(result.timeline) == 600
    assert result.plot("ttft").axes
    with pytest.raises(st.InputError, match="kind: must be timeline or ttft, got 'cdf'"):
        result.plot("cdf")


def test_a_frame_without_pandas_says_how_to_get_it(result, monkeypatch):
    real = builtins.__import__

    def without_pandas(name, *args, **kwargs):
        if name == "servetwin" and "frames" in (args[2] or ()):
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(st.InputError, match=r"a data frame needs pandas: .*\[notebook\]"):
        _ = st.run(SMOKE, FEW).requests


def test_saved_run_is_loaded(result):
    result.save("out")
    again = st.load("out")
    assert without_time(again.summary) == without_time(result.summary)
    assert again.requests["ttft_ms"].tolist() == pytest.approx(result.requests["ttft_ms"].tolist())
    assert again.timeline["waiting"].sum() == pytest.approx(result.timeline["waiting"].sum())
    assert again.plot().axes
    both = st.compare({"now": result, "then": "out"})
    assert both.frame.loc["p99_ttft_ms"].nunique() == 1
    for refused in (lambda: again.steps, lambda: again.save("more"), both.plot):
        with pytest.raises(st.InputError, match="folder"):
            refused()


def test_sweep_is_the_same_on_processes_and_on_disk():
    alone, spread = st.sweep(SMOKE, SWEEP, jobs=1), st.sweep(SMOKE, SWEEP, jobs=2, out="kept")
    loaded = st.load("kept")
    for found in (spread, loaded):
        assert found.frame.equals(alone.frame)
        assert found.points.equals(alone.points)
    assert alone.frame["runs"].tolist() == [1, 1, 1, 1]
    assert alone.plot().axes
    assert spread.plot(kind="curve", x="replicas", y="p99_ttft_ms").axes
    kept = {path: path.stat().st_mtime_ns for path in Path("kept/points").iterdir()}
    st.sweep(SMOKE, SWEEP, out="kept")
    assert {path: path.stat().st_mtime_ns for path in Path("kept/points").iterdir()} == kept


def test_sweep_in_a_script_needs_no_guard():
    """Workers do not run the script again."""
    Path("script.py").write_text(
        "import servetwin as st\nprint('begun')\n"
        f"print(len(st.sweep({str(SMOKE)!r}, {SWEEP!r}, jobs=2).points))\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("begun\n4\n", "")


def test_points_that_fail_are_rows():
    """If all do, that is an error."""
    trace = {"kind": "trace", "format": "mooncake"}
    bad = {"sweep": {"workload": [st.load(SMOKE).data["workload"], trace | {"path": "no.jsonl"}]}}
    found = st.sweep(SMOKE, bad, jobs=1)
    assert found.points["status"].tolist() == ["done", "bad input"]
    assert "2 points, 1 failed" in repr(found)
    assert "No such file" in repr(found)
    with pytest.raises(st.InputError, match=r"every point failed, the first with: .*No such file"):
        st.sweep(SMOKE, {"workload": trace | {"path": "no.jsonl"}, "sweep": {"seeds": [1, 2]}})


def test_other_folders_are_refused():
    Path("empty").mkdir()
    with pytest.raises(st.InputError, match="empty: holds no finished run or sweep"):
        st.load("empty")
    with pytest.raises(st.InputError, match="empty: settings are for scenarios"):
        st.load("empty", {"seed": 1})
    with pytest.raises(st.InputError, match="there is no run to compare"):
        st.compare([])
    with pytest.raises(st.InputError, match="is one run: give a list"):
        st.compare("out")
