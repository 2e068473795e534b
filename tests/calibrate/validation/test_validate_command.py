"""`calibrate validate` from the command line."""

import json
import re
from functools import partial
from pathlib import Path

import pytest

from sim.latency.profile.format import profile_text
from sim.runlog.run_log_file import write_run_log
from tests.support.measured_runs import MADE_UP, Disturbance

FCFS = "scheduler.schedule_policy=fcfs"
TRACE = "workload={kind: trace, format: servetwin, path: requests.jsonl}"
ROWS = [
    {
        "rid": f"r{i}",
        "arrival": i / 10,
        "segments": [[7, 100], [i, 20]],
        "output_len": 5,
        "output_seed": 100 + i,
    }
    for i in range(8)
]


@pytest.fixture
def truth(folder, profile):
    """A file with an exact profile."""
    Path("truth.json").write_text(profile_text(profile()), encoding="utf-8")
    return "truth.json"


@pytest.fixture
def logs(record):
    """Two policies at one load, the first one served twice."""
    return [
        record(name, *options, disturbance=Disturbance(0.05, 1_000_000, seed))
        for seed, (name, *options) in enumerate([("a.jsonl",), ("b.jsonl",), ("c.jsonl.gz", FCFS)])
    ]


@pytest.fixture
def refused(refuse, truth):
    """Validate these logs, which must fail; returns the one line."""
    return partial(refuse, "validate", truth)


def test_validate_prints_steps_stages_ratios_and_rankings(calibrate, truth, logs):
    """Every table, and nothing on stderr."""
    code, out, err = calibrate("validate", truth, *logs)
    assert (code, err) == (0, "")
    for words in (
        "steps of 3 logs are decided the same again",
        "MAPE %",
        "study (schedule_policy=lpm), 2 runs",
        "study (schedule_policy=fcfs), 1 run ",
        "TTFT p99 ms",
        "TPOT of a request, mean |error|",
        "same steps %",
        "simulated with",
        "Kendall's tau",
        "Verdict on study (schedule_policy=lpm): 2 equal runs differ by mean TTFT ",
        "Verdict on study (schedule_policy=fcfs): served once, so an error of up to ",
    ):
        assert words in out
    assert out.splitlines()[-1].startswith("Verdict ")
    assert "written" not in out


def test_validate_verdict_without_repeats_asks_for_one(calibrate, truth, logs):
    """Nothing says what is noise."""
    _, out, _ = calibrate("validate", truth, logs[2])
    assert out.splitlines()[-1].startswith("Verdict: no scenario was served twice")


def test_validate_verdict_on_a_noisy_machine_says_so(calibrate, truth, record):
    """The second run's steps take twice as long."""
    logs = [record(f"{k}.jsonl", disturbance=Disturbance(0.05, k * 4_000_000, k)) for k in (1, 9)]
    _, out, _ = calibrate("validate", truth, *logs)
    assert "Verdict on this machine: its pace varies by " in out


def test_validate_json_holds_everything_and_is_the_same_twice(calibrate, truth, logs):
    """No time of day, no path of a temporary folder."""
    code, out, err = calibrate("validate", truth, *logs, "--format", "json")
    assert (code, err) == (0, "")
    assert calibrate("validate", truth, *logs, "--format", "json") == (code, out, err)
    data = json.loads(out)
    assert data["profile"] == "truth"
    assert data["remarks"] == []
    assert list(data["steps"]) == ["extend", "decode"]
    assert data["range"]["num_outside"] == 0
    lpm, fcfs = data["cases"]
    assert [run["log"] for run in lpm["runs"]] == ["a.jsonl", "b.jsonl"]
    assert [run["replay"] for run in lpm["runs"]] == ["identical"] * 2
    assert lpm["real"]["spread_pct"]["mean_ttft_ms"] > 0
    assert fcfs["real"]["spread_pct"]["mean_ttft_ms"] is None
    for stage in ("recorded", "profile"):
        assert abs(lpm[stage]["error_pct"]["mean_tpot_ms"]) < 10
        assert len(lpm[stage]["runs"]) == 2
    (ranking,) = data["rankings"]
    assert ranking["labels"] == [lpm["label"], fcfs["label"]]
    assert ranking["agreements"]["recorded"]["mean_ttft_ms"]["tau"] == 1


def test_validate_skip_leaves_the_first_requests_out(calibrate, truth, record, refused):
    """Their tokens came a second late; all others came when the exact profile says."""

    def change(run):
        for line in run.requests[:5]:
            line["ttft_ns"] += 10**9
            line["token_ns"] = [at_ns + 10**9 for at_ns in line["token_ns"]]

    def errors(*options):
        out = calibrate("validate", truth, log, "--format", "json", *options)[1]
        profile = json.loads(out)["cases"][0]["profile"]
        of_requests = profile["request_error_pct"].items()
        return profile["error_pct"] | {f"request {name}": error for name, error in of_requests}

    log = record("late.jsonl", change=change)
    assert errors()["mean_ttft_ms"] < -30
    assert errors("--skip", 4)["mean_ttft_ms"] < -5
    assert errors("--skip", 4)["request ttft"] > 1
    left = errors("--skip", 5)
    assert {name for name, error in left.items() if error is None} == {
        f"{statistic}_itl_ms" for statistic in ("mean", "median", "p90", "p99")
    }
    assert all(abs(error) < 0.1 for error in left.values() if error is not None)
    assert refused(log, "--skip", 40) == f"{log}: has 40 requests: to skip 40 leaves none"


def test_validate_out_writes_json_and_pictures(calibrate, truth, logs):
    """The same bytes twice; other files in the folder stay."""
    Path("out").mkdir()
    Path("out/notes.txt").write_text("mine", encoding="utf-8")
    _, printed, _ = calibrate("validate", truth, *logs, "--format", "json", "--out", "out")
    first = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    assert set(first) == {
        "notes.txt",
        "steps.png",
        "ttft-study-schedule_policy=lpm.png",
        "ttft-study-schedule_policy=fcfs.png",
        "validation.json",
    }
    assert first["validation.json"].decode() == printed
    _, printed, _ = calibrate("validate", truth, *logs, "--out", "out")
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == first
    assert "written: out/steps.png, " in printed


def test_validate_interrupted_leaves_nothing(calibrate, truth, logs, monkeypatch):
    """Ctrl-C while runs are simulated: one line, 130, and no folder."""

    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("calibrate.validate.simulate_profile", interrupt)
    ended = calibrate("validate", truth, *logs, "--out", "out")
    assert ended == (130, "", "calibrate: interrupted\n")
    assert not Path("out").exists()


def test_validate_on_a_full_disk_leaves_no_document_of_another_call(
    calibrate, truth, logs, monkeypatch
):
    """One line; validation.json is there only beside the pictures that were written with it."""
    assert calibrate("validate", truth, *logs, "--out", "out")[0] == 0
    pictures = {path: path.read_bytes() for path in Path("out").glob("*.png")}

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    monkeypatch.setattr("pathlib.Path.write_text", full)
    code, printed, line = calibrate("validate", truth, *logs, "--out", "out")
    assert (code, printed) == (2, "")
    assert line.endswith("cannot be written: No space left on device\n")
    assert line.count("\n") == 1
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == pictures


def test_validate_tampered_log_prints_the_divergence_and_fails(calibrate, truth, record, logs):
    """The other logs make no difference; nothing is written."""

    def change(run):
        run.steps[10]["evictable"] += 16

    bad = record("bad.jsonl", change=change)
    code, out, err = calibrate("validate", truth, *logs, bad, "--out", "out")
    assert (code, err) == (1, "")
    assert out.startswith("bad.jsonl: a decision differs in the replay\nstep 10: evictable\n")
    assert not Path("out").exists()


def test_validate_trace_is_looked_for_beside_the_log_or_where_told(
    calibrate, truth, record, refused
):
    """Paths in the scenario were relative to its file, which may lie elsewhere."""
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    Path("requests.jsonl").write_text(lines, encoding="utf-8")
    log = record("run.jsonl", TRACE)
    assert calibrate("validate", truth, log)[0] == 0
    Path("traces").mkdir()
    Path("requests.jsonl").rename("traces/requests.jsonl")
    line = refused(log)
    assert line.startswith("run.jsonl: its workload: ")
    assert "requests.jsonl" in line
    assert calibrate("validate", truth, log, "--base-dir", "traces")[0] == 0


def test_validate_other_fingerprint_is_refused_unless_wanted(calibrate, refused, record, truth):
    """The first key that differs; asked for anyway, it is a remark."""
    log = record("run.jsonl", fingerprint={**MADE_UP, "torch": "9"})
    assert refused(log) == (
        "run.jsonl: fingerprint.torch: '9' is not the '0' of profile truth"
        " (--any-fingerprint compares them anyway)"
    )
    code, out, _ = calibrate("validate", truth, log, "--any-fingerprint")
    assert code == 0
    assert "run.jsonl: fingerprint.torch: '9' is not the '0' of profile truth\n" in out


def test_validate_log_the_profile_was_fitted_on_is_remarked(calibrate, profile, record):
    """Its steps are not held out."""
    source = {"file": "run.jsonl", "source": "realrun", "points": 0, "steps": 9}
    data = {**json.loads(profile_text(profile())), "created_from": [source]}
    Path("fitted.json").write_text(json.dumps(data), encoding="utf-8")
    code, out, _ = calibrate("validate", "fitted.json", record())
    assert code == 0
    assert "run.jsonl: the profile was fitted on a log of this name" in out


@pytest.mark.parametrize(
    ("meta", "line"),
    [
        ({"source": "simulation"}, "run.jsonl: meta.source: is the log of a simulation, not of a"),
        ({"sampling": "greedy"}, "run.jsonl: meta.sampling: 'greedy': only outputs that the"),
        ({"scenario": None}, "run.jsonl:1: scenario: must be a valid dictionary, got null"),
        ({"scenario_hash": 5}, "run.jsonl:1: scenario_hash: must be a valid string, got 5"),
        ({"max_total_tokens": "many"}, "run.jsonl:1: max_total_tokens: must be a valid integer"),
        ({"scenario": {"name": "x"}}, "run.jsonl: meta.scenario.latency: "),
    ],
)
def test_validate_log_of_no_real_run_is_refused(refused, record, meta, line):
    """One line that names the log and what is wrong with it."""
    assert refused(record("run.jsonl", **meta)).startswith(line)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda run: run.steps[5].pop("decode_crc"), "step 5: decode_crc: missing"),
        (lambda run: run.requests[0].update(rid="stranger"),
         "request 'stranger': is in the log twice, or not in the scenario"),
        (lambda run: run.requests.insert(1, run.requests[0]),
         "rid: the string '0' occurs twice"),
        (lambda run: run.steps[3].update(t_end_ns="soon"),
         "t_end_ns: must be a valid integer, got the string 'soon'"),
        (lambda run: run.steps[4].update(mode="idle"),
         "mode: must be 'extend', 'decode' or 'mixed', got the string 'idle'"),
        (lambda run: run.requests[2].update(finish_ns="late"),
         "finish_ns: must be a valid integer, got the string 'late'"),
        (lambda run: run.steps.clear(), "has no steps"),
    ],
    ids=["no crc", "a stranger", "twice", "no time", "no mode", "no finish", "no steps"],
)  # fmt: skip
def test_validate_damaged_log_is_refused(refused, record, change, line):
    """Before anything is simulated."""
    found = refused(record("run.jsonl", change=change))
    assert re.fullmatch(rf"run.jsonl(:\d+)?: {re.escape(line)}", found)


def test_validate_unusable_files_are_refused(refused, record, folder, calibrate):
    """Truncated, absent, measured points only; a folder that cannot be; no such profile."""
    log = record()
    assert "is truncated" in refused(_cut(log))
    assert refused("none.jsonl") == "none.jsonl: cannot be read: No such file or directory"
    points = folder / "points.jsonl"
    write_run_log(points, {"source": "profile", "fingerprint": MADE_UP}, [])
    assert refused(points).endswith("is the log of a profile, not of a real run")
    assert refused(log, "--out", log) == "run.jsonl: is a file, expected a folder"
    code, _, err = calibrate("validate", "h200/none", log)
    assert code == 2
    assert "unknown profile 'h200/none'" in err


def _cut(log):
    cut = Path("cut.jsonl")
    cut.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]), encoding="utf-8")
    return cut


def test_validate_mode_the_profile_lacks_is_refused(calibrate, profile, record):
    """One line that names the profile and the mode."""
    data = json.loads(profile_text(profile()))
    del data["modes"]["decode"]
    Path("half.json").write_text(json.dumps(data), encoding="utf-8")
    code, out, err = calibrate("validate", "half.json", record())
    assert (code, out) == (2, "")
    assert err.startswith("calibrate: profile truth: has no times of decode steps")
