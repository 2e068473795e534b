"""`autoscale` on the command line: what a run prints and writes, and bad input."""

import json
from pathlib import Path

import pytest

from sim.report.run_folder import read_fleet
from sim.runlog.servers import ReplicaState

AUTOSCALE = (
    "autoscale={rule: {kind: concurrency, target: 2}, max_replicas: 4, interval_s: 0.2,"
    " sample_s: 0.1, startup_s: 0.3, shrink: {window_s: 0.5}}"
)
BUSY = ("--set", "workload.num_requests=200", "--set", "workload.arrivals.rate_rps=40")
SCALED = (*BUSY, "--set", AUTOSCALE, "--set", "router=prefix-aware")


def test_run_prints_what_the_fleet_costs(simulate, scenario):
    """GPU-hours, replicas, starts and the time below the SLO."""
    ended = simulate("run", scenario, *SCALED)
    assert ended.code == 0, ended.err
    for words in ("GPU-hours", "replicas, mean", "starts of replicas", "time below SLO s"):
        assert words in ended.out
    assert "GPU-hours" not in simulate("run", scenario, *BUSY).out


def test_run_writes_the_same_files_with_and_without_fast_forward(simulate, scenario):
    """Decisions, requests, summary and fleet.csv."""
    written = []
    for option in ((), ("--no-fast-forward",)):
        ended = simulate(
            "run", scenario, *SCALED, *option, "--decisions", "d.jsonl", "--out", "out"
        )
        assert ended.code == 0, ended.err
        names = ("out/requests.csv", "out/fleet.csv", "out/summary.json", "d.jsonl")
        written.append([Path(name).read_bytes() for name in names])
    assert written[0] == written[1]
    assert b"draining" in written[0][1]


def test_run_folder_has_the_fleet_and_its_report_draws_it(simulate, scenario):
    """Events in order; a run without autoscale in the same folder takes the file away."""
    assert simulate("run", scenario, *SCALED, "--out", "out").code == 0
    fleet = read_fleet(Path("out/fleet.csv"))
    states = {event.state for event in fleet.events}
    assert states == set(ReplicaState)
    assert set(fleet.gpus) == {1}
    ended = simulate("report", "out")
    assert ended.code == 0, ended.err
    assert "03-fleet.png" in ended.out
    page = Path("out/report/index.html").read_text(encoding="utf-8")
    assert "Replicas and load over time" in page
    assert "GPU-hours" in page
    assert simulate("run", scenario, *BUSY, "--out", "out").code == 0
    assert not Path("out/fleet.csv").exists()


def test_compare_replays_replicas_that_came_and_went(simulate, scenario):
    """Each life of a replica begins with an empty cache, in the replay too."""
    assert simulate("run", scenario, *SCALED, "--decisions", "d.jsonl").code == 0
    lines = [json.loads(line) for line in Path("d.jsonl").read_text(encoding="utf-8").splitlines()]
    ups = [line["replica"] for line in lines if line.get("state") == "up" and line["t_ns"]]
    assert len(ups) > len(set(ups)), "no replica came again"
    ended = simulate("compare", "d.jsonl", scenario, *SCALED)
    assert "decided the same again" in ended.out


def test_run_jobs_says_why_it_runs_in_one_process(simulate, scenario, inline):
    """The autoscaler looks at all replicas."""
    ended = simulate("run", scenario, *BUSY, "--set", AUTOSCALE, "--jobs", "2")
    assert ended.code == 0, ended.err
    assert "runs in one process: its autoscaler looks at all replicas" in ended.err
    assert inline.num_run == 0


RULE = "rule: {kind: queue, target: 1}"


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        (f"{RULE}, max_replicas: 2, min_replicas: 3", "min_replicas 3 is more than max_replicas 2"),
        (
            "rule: {kind: que}, max_replicas: 2",
            "autoscale.rule.kind: unknown kind 'que' (did you mean queue?)",
        ),
        ("rule: {kind: queue}, max_replicas: 2", "autoscale.rule.target: is required"),
        (
            "rule: {kind: queue, target: 0}, max_replicas: 2",
            "autoscale.rule.target: must be greater than 0, got 0",
        ),
        (f"{RULE}, max_replicas: 2, startup_s: -1", "autoscale.startup_s: must be at least 0"),
        (f"{RULE}, max_replicas: 2, sample_s: 16", "sample_s 16 is more than interval_s 15"),
        (f"{RULE}", "autoscale.max_replicas: is required"),
        ("max_replicas: 2", "autoscale.rule: is required"),
        (f"{RULE}, max_replicas: 9, min_replicas: 2", "replicas 1 must be from"),
        (
            "rule: {kind: dynamo, grow_above: 0.1, shrink_below: 0.2}, max_replicas: 2",
            "shrink_below 0.2 is more than grow_above 0.1",
        ),
        (
            "rule: {kind: schedule, steps: [{at_s: 1, replicas: 1}]}, max_replicas: 2",
            "at_s must begin at 0",
        ),
        (
            f"{RULE}, max_replicas: 2, interval_s: 0",
            "autoscale.interval_s: must be at least 0.001, got 0",
        ),
    ],
)
def test_bad_section_ends_with_one_line(refused, scenario, section, reason):
    """File or option, key and reason."""
    assert reason in refused(scenario, "--set", f"autoscale={{{section}}}")


def test_slo_rule_without_a_limit_is_refused(refused, scenario):
    """There is nothing to hold latencies against."""
    line = refused(
        scenario,
        *("--set", "slo={e2e_latency_ms: 9}"),
        *("--set", "autoscale={rule: {kind: slo}, max_replicas: 2}"),
    )
    assert "autoscale.rule of kind slo needs slo.ttft_ms or slo.tpot_ms" in line


DAMAGES = (
    ("up", "upp", "state: is no state of a replica: the string 'upp'"),
    ("0.0,0,1,", "0.0,0.5,1,", "replica: must be a whole number, got 0.5"),
    ("0.0,0,1,", "-1,0,1,", "t_s: must be a number, 0 or more"),
    ("0.0,0,1,", "1e6,0,1,", "t_s: times must rise"),
    ("state", "stat", "state: there is no such column"),
)


def test_damaged_fleet_file_is_refused(simulate, scenario):
    """By the report, in one line."""
    assert simulate("run", scenario, *SCALED, "--out", "out").code == 0
    path = Path("out/fleet.csv")
    whole = path.read_text(encoding="utf-8")
    for old, new, reason in DAMAGES:
        path.write_text(whole.replace(old, new, 1), encoding="utf-8")
        ended = simulate("report", "out")
        assert ended.code == 2
        assert reason in ended.err
        assert len(ended.err.splitlines()) == 1
