"""`calibrate validate SCENARIO MEASURED` from the command line."""

import csv
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from calibrate.measured.over_time import logged_sizes
from calibrate.measured.twin import Twin
from sim.runlog import NOT_YET_NS
from tests.support.measured_runs import Disturbance

HOST = "latency.host_s=0.002"
CLIENTS = (
    "workload={kind: clients, clients: 2, requests_per_client: 2,"
    " think_s: {kind: constant, value: 1},"
    " prompt_tokens: {kind: constant, value: 9}, output_tokens: {kind: constant, value: 9}}"
)
NOISY = Disturbance(noise=0.05)


@pytest.fixture
def measured(measured_file):
    """A run with host time and noise."""
    return measured_file(HOST, disturbance=NOISY)


@pytest.fixture
def timeseries(load):
    """What a server would log every 0.1 s, without noise."""
    t_s = np.arange(1, 60) / 10
    sizes = logged_sizes(Twin(load(HOST)).run_with(()), (t_s * 1e9).astype(np.int64))
    path = Path("timeseries.csv")
    rows = zip(t_s.tolist(), *(size.astype(int).tolist() for size in sizes), strict=True)
    lines = ["t,gen_throughput,running,waiting,kv_cache_pct"]
    lines += [f"{t},1.0,{running},{waiting},0.0" for t, running, waiting in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def refused(refuse, scenario_file):
    """Validate with these arguments, which must fail; returns the one line."""
    return partial(refuse, "validate")


@pytest.fixture
def validation(calibrate, scenario_file):
    """Validate the scenario with these arguments; returns the JSON."""

    def run(*arguments):
        code, out, err = calibrate("validate", scenario_file, *arguments, "--format", "json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return run


def test_validate_prints_counts_latencies_and_throughput(calibrate, scenario_file, measured):
    """Every number under its name, nothing on stderr."""
    code, out, err = calibrate("validate", scenario_file, measured, "--set", HOST)
    assert (code, err) == (0, "")
    assert out.startswith("80 requests measured, 80 simulated\njudged: all (80), compared: 80\n\n")
    for words in (
        "measured   simulated   error %",
        "TTFT p50 ms",
        "TPOT p99 ms",
        "latency of a request, mean |error|",
        "makespan s",
        "output tokens/s",
    ):
        assert words in out
    assert "written" not in out
    assert "running" not in out


def test_validate_is_right_with_the_true_host_time_and_wrong_without(validation, measured):
    """A simulation without host time is too fast in everything."""
    right, wrong = validation(measured, "--set", HOST), validation(measured)
    for name in ("ttft", "tpot", "latency"):
        assert wrong["latencies"][name]["mean_ms"]["error_pct"] < -8
        assert wrong["latencies"][name]["request_error_pct"] > 8
    for name in ("tpot", "latency"):
        assert abs(right["latencies"][name]["mean_ms"]["error_pct"]) < 3
        assert right["latencies"][name]["requests"] == 80
    assert wrong["makespan_s"]["error_pct"] < -3 < right["makespan_s"]["error_pct"]
    assert right["arrivals"] == {"shift_s": 0.0, "spread_ms": 0.0}
    assert right["scenario_hash"] != wrong["scenario_hash"]


def test_validate_without_noise_is_exact(validation, measured_file):
    """The same device, the same scheduler: no error, in any number."""
    data = validation(measured_file(HOST), "--set", HOST)
    for latency in data["latencies"].values():
        for name, value in latency.items():
            if name.endswith("_ms"):
                assert value["error_pct"] in {0, None}
                assert value["measured"] == value["simulated"]
        assert latency["request_error_pct"] == 0
    assert data["output_throughput"]["error_pct"] == 0


def test_validate_judges_the_first_or_the_rest(validation, calibrate, scenario_file, measured):
    """All are simulated in any case; means of the parts add up to that of all."""
    data = {
        key: validation(measured, *option)
        for key, option in {"all": (), "first": ("--first", 30), "rest": ("--skip", 30)}.items()
    }
    assert [d["requests"]["compared"] for d in data.values()] == [80, 30, 50]
    assert [d["requests"]["simulated"] for d in data.values()] == [80] * 3
    assert data["rest"]["judged"] == {"first": None, "skip": 30}
    for side in ("measured", "simulated"):
        whole, first, rest = (d["latencies"]["ttft"]["mean_ms"][side] for d in data.values())
        assert whole == pytest.approx((30 * first + 50 * rest) / 80)
    out = calibrate("validate", scenario_file, measured, "--skip", 30)[1]
    assert "judged: all but the first 30 by arrival (50), compared: 50\n" in out


def with_odd_requests(run):
    """One under another name, one failed, one with another output."""
    finish_ns, output_tokens = run.finish_ns.copy(), run.output_tokens.copy()
    finish_ns[5] = NOT_YET_NS
    output_tokens[7] += 3
    rid = ["stranger" if row == 3 else name for row, name in enumerate(run.rid)]
    return replace(run, rid=rid, finish_ns=finish_ns, output_tokens=output_tokens)


def test_validate_names_everybody_who_is_not_compared(
    validation, calibrate, scenario_file, measured_file
):
    """In the text and in the JSON."""
    measured = measured_file(change=with_odd_requests)
    requests = validation(measured)["requests"]
    assert (requests["judged"], requests["compared"]) == (80, 78)
    assert requests["only_measured"] == ["stranger"]
    assert requests["only_simulated"] == ["3"]
    assert requests["failed_measured"] == ["5"]
    assert requests["failed_simulated"] == {}
    (((rid, (ours, theirs)),)) = requests["output_tokens_differ"].items()
    assert (rid, ours - theirs) == ("7", 3)
    out = calibrate("validate", scenario_file, measured)[1]
    for line in (
        "measured, not in the simulation: 1: stranger",
        "in the simulation, not measured: 1: 3",
        "did not finish when measured: 1: 5",
        f"output tokens differ (measured/simulated): 1: 7 ({ours}/{theirs})",
    ):
        assert f"\n{line}\n" in out
    limited = ("--set", "workload.num_requests=50")
    out = calibrate("validate", scenario_file, measured_file(name="b.jsonl"), *limited)[1]
    assert "measured, not in the simulation: 30: 50, 51, " in out
    assert "59 and 20 more (--format json names all)\n" in out


def test_validate_takes_measured_arrivals_where_told(validation, measured_file):
    """They are remarked upon if they are not taken."""
    early = measured_file(change=lambda run: replace(run, arrival_ns=run.arrival_ns // 2))
    off = validation(early)
    assert off["arrivals"]["spread_ms"] > 100
    assert off["remarks"][0].startswith("requests arrive up to ")
    taken = validation(early, "--measured-arrivals")
    assert taken["arrivals"] == {"shift_s": 0.0, "spread_ms": 0.0}
    assert taken["remarks"] == [] or "arrive" not in taken["remarks"][0]
    faster = [d["makespan_s"]["simulated"] for d in (taken, off)]
    assert faster[0] < faster[1]


def test_validate_out_writes_numbers_tables_and_pictures(
    calibrate, scenario_file, measured, timeseries
):
    """The same bytes twice; other files in the folder stay; rows are the requests."""
    Path("out").mkdir()
    Path("out/notes.txt").write_text("mine", encoding="utf-8")
    command = ("validate", scenario_file, measured, "--timeseries", timeseries, "--out", "out")
    _, printed, _ = calibrate(*command, "--format", "json")
    first = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    assert set(first) == {
        "notes.txt",
        "validation.json",
        "requests.csv",
        "requests.png",
        "distributions.png",
        "over-time.csv",
        "over-time.png",
    }
    assert first["validation.json"].decode() == printed
    _, printed, _ = calibrate(*command)
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == first
    assert "written: out/requests.csv, " in printed
    with Path("out/requests.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 80
    data = json.loads(first["validation.json"])
    mean_ms = np.mean([float(row["simulated_tpot_ms"]) for row in rows])
    assert mean_ms == pytest.approx(data["latencies"]["tpot"]["mean_ms"]["simulated"])


def test_validate_compares_sizes_over_time(validation, calibrate, scenario_file, timeseries,
                                           measured_file):  # fmt: skip
    """None apart where the simulation is what was logged."""
    run = measured_file(HOST)
    data = validation(run, "--set", HOST, "--timeseries", timeseries)["over_time"]
    assert data["running"]["mean_difference"] == data["waiting"]["mean_difference"] == 0
    assert data["running"]["mean_measured"] > 3
    assert data["samples"] + data["left_out"] == 59
    out = calibrate("validate", scenario_file, run, "--timeseries", timeseries)[1]
    assert f"requests, {data['samples']} samples   measured   simulated   mean |difference|" in out
    off = validation(run, "--timeseries", timeseries)["over_time"]
    assert off["waiting"]["mean_difference"] > 0.5


def test_validate_options_of_the_other_kind_are_refused(refused, measured, timeseries):
    """One line each: what they are for."""
    study = "study.yaml"
    assert refused(study, measured, "--base-dir", ".") == "--base-dir: only with a profile"
    assert refused(study, measured, "--any-fingerprint").startswith("--any-fingerprint: only with")
    for option in (("--first", 3), ("--set", HOST), ("--measured-arrivals",),
                   ("--timeseries", timeseries)):  # fmt: skip
        line = refused("profile.json", measured, *option)
        assert line == f"{option[0]}: only with a scenario (.yaml) as first argument"
    assert refused(study, measured, "b.jsonl") == "b.jsonl: one measured run at a time, got 2"


def test_validate_unusable_input_is_refused(refused, measured, timeseries):
    """Before anything is written."""
    study = "study.yaml"
    assert refused("none.yaml", measured).startswith("none.yaml: ")
    assert refused(study, "none.jsonl") == "none.jsonl: cannot be read: No such file or directory"
    assert refused(study, measured, "--first", 81) == "--first 81: the run has 80 requests"
    line = refused(study, measured, "--first", 3, "--skip", 3)
    assert line == "--first and --skip: give one of the two"
    assert refused(study, measured, "--set", "latency.hots_s=1").startswith("--set latency.hots_s")
    assert refused(study, measured, "--timeseries", "none.csv") == (
        "none.csv: cannot be read: No such file or directory"
    )
    assert refused(study, measured, "--out", study) == f"{study}: is a file, expected a folder"
    Path("out").mkdir()
    timeseries.rename("out/over-time.csv")
    line = refused(study, measured, "--timeseries", "out/over-time.csv", "--out", "out")
    assert line == "out/over-time.csv: would be overwritten: give another folder to --out"
    assert [path.name for path in Path("out").iterdir()] == ["over-time.csv"]
    other = measured.rename("other.jsonl.gz")
    line = refused(study, other, "--set", CLIENTS, "--measured-arrivals")
    assert line.startswith("study.yaml: workload: each client waits for an answer ")
