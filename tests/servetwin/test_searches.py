"""`servetwin.plan`, `tune` and `contest`: what the commands find, in Python."""

import csv
from pathlib import Path

import pytest

import servetwin as st

SMOKE = Path(__file__).parents[2] / "scenarios" / "smoke.yaml"
PLAN = {
    "slo": {"ttft_ms": 500, "tpot_ms": 50},
    "plan": {"min_slo_attainment": 0.9, "max_replicas": 4, "gpus": {"any": {}}},
    "workload.num_requests": 150,
    "workload.arrivals.rate_rps": 60,
}
TUNE = {
    "tune": {"num_trials": 3, "seeds": [1], "objective": "goodput",
             "ranges": {"scheduler.max_running_requests": {"kind": "int", "min": 2, "max": 64}}},
    "workload.num_requests": 60,
}  # fmt: skip


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_plan_finds_what_its_command_writes(tmp_path, capfd):
    """And the best one runs as any scenario; nothing is said on the way."""
    found = st.plan(SMOKE, PLAN, jobs=1, out=tmp_path / "out")
    assert capfd.readouterr().err == ""
    [row] = rows_of(tmp_path / "out" / "results.csv")
    assert found.frame["replicas"].tolist() == [int(row["replicas"])]
    assert found.best.loaded.scenario.replicas == int(row["replicas"]) > 1
    assert st.run(found.best).summary["slo_attainment"] >= 0.9
    assert "replicas" in repr(found)
    assert "<table" in found._repr_html_()
    assert found.launches["sglang"][0].command.startswith("python -m sglang.launch_server")


def test_plan_that_nothing_meets_has_no_best():
    found = st.plan(SMOKE, PLAN | {"slo": {"tpot_ms": 0.001}}, jobs=1)
    assert found.best is None
    assert "No deployment meets the SLO." in repr(found)


def test_plan_of_traffic_that_cannot_come_faster_has_no_headroom():
    """All at once: the deployment is found all the same."""
    bench = {"kind": "bench", "client": "vllm", "num_prompts": 40, "input_len": 64, "output_len": 8}
    settings = {key: value for key, value in PLAN.items() if not key.startswith("workload.")}
    found = st.plan(SMOKE, settings | {"workload": bench}, jobs=1)
    assert found.best is not None
    assert found.frame["verdict"].tolist() == ["meets"]


def test_tune_finds_what_its_command_writes(tmp_path):
    found = st.tune(SMOKE, TUNE, jobs=1, out=tmp_path / "out")
    rows = rows_of(tmp_path / "out" / "results.csv")
    assert len(found.frame) == len(rows) == 3
    assert found.winner is not None
    assert "winner" in repr(found)


@pytest.mark.parametrize(
    ("call", "settings", "message"),
    [
        (st.plan, {}, "has no plan section"),
        (st.tune, {}, "has no tune section"),
        (st.plan, PLAN, "jobs: must be at least 1, got 0"),
    ],
)
def test_bad_searches_are_one_line(call, settings, message):
    with pytest.raises(st.InputError, match=message):
        call(SMOKE, settings, jobs=0)


CONTEST = {
    "slo": {"ttft_ms": 500, "tpot_ms": 50},
    "workload.num_requests": 40,
    "contest": {
        "reference": "fcfs",
        "contestants": {
            name: {"scheduler.schedule_policy": name} for name in ("fcfs", "lpm", "lof")
        },
        "traffic": ["own"],
        "loads": [1.2],
        "seeds": 3,
    },
}


def test_contest_finds_what_its_command_writes(tmp_path, capfd):
    """Nothing is said on the way; a card and a picture for those that are not the reference."""
    found = st.contest(SMOKE, CONTEST, jobs=1, out=tmp_path / "out")
    assert capfd.readouterr().err == ""
    rows = rows_of(tmp_path / "out" / "contest.csv")
    assert found.frame["contestant"].tolist() == [row["contestant"] for row in rows]
    assert found.frame["p99_ttft_ms"].tolist() == [float(row["p99_ttft_ms"]) for row in rows]
    assert "3 contestants" in repr(found)
    assert repr(found).splitlines()[1].endswith("over all traffic, at 1.2 of the capacity:")
    assert "<table" in found._repr_html_()
    assert "p99 TTFT" in found.card("lpm")
    assert len(found.plot().axes) == 1
    with pytest.raises(st.InputError, match="unknown contestant 'fcfs'"):
        found.card("fcfs")
    with pytest.raises(st.InputError, match="unknown picture 'tpot'"):
        found.plot("tpot")
