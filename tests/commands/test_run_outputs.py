"""What `simulate run` writes: every file has the documented names, and agrees with the rest."""

import csv
import gzip
import json
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import sim.commands.run
from sim.report.progress import Progress

REPOSITORY = Path(__file__).parents[2]
STATISTICS = ("mean", "median", "std", "p90", "p95", "p99")
SUMMARY_NAMES = {
    *("duration", "completed", "total_input_tokens", "total_output_tokens", "request_throughput"),
    *("input_throughput", "output_throughput", "total_throughput", "concurrency"),
    *(f"{s}_{m}_ms" for s in STATISTICS for m in ("ttft", "tpot", "itl", "e2e_latency")),
    *("goodput_slos_ms", "request_goodput", "slo_attainment", "total_cached_tokens"),
    *("cache_hit_rate_pct", "queue_time", "retractions", "preemptions", "max_wait_ms"),
    *("saturated", "simulated_steps", "wall_seconds"),
}
REQUEST_COLUMNS = (
    *("rid", "arrival_s", "ttft_ms", "tpot_ms", "e2e_latency_ms", "queue_time_ms"),
    *("prompt_tokens", "cached_tokens", "output_tokens", "retractions", "preemptions"),
    *("replica", "tenant", "status"),
)


def read_csv(path):
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_log(path):
    with Path(path).open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def without_wall_seconds(text):
    return {**json.loads(text), "wall_seconds": None}


@pytest.fixture
def served(simulate, scenario):
    """A run with a file of each kind; returns its summary."""
    ended = simulate(
        *("run", scenario, "--format", "json", "--decisions", "d.jsonl"),
        *("--requests", "r.csv", "--perfetto", "p.json"),
    )
    assert (ended.code, ended.err) == (0, "")
    return json.loads(ended.out)


def test_run_summary_has_every_documented_name(served):
    """The names of SGLang's serving benchmark, and ours beside them."""
    assert set(served) >= SUMMARY_NAMES
    assert served["completed"] == served["submitted"] == 40
    assert served["duration"] > 0
    assert served["goodput_slos_ms"] == {"ttft": 500.0, "tpot": 50.0}


def test_run_out_folder_has_summary_tables_and_plots(simulate, scenario, served):
    """The same summary as on stdout but for the time that it took, the same table as --requests."""
    out = Path("out")
    ended = simulate("run", scenario, "--format", "json", "--out", out)
    written = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert written == {name: v for name, v in served.items() if name != "wall_seconds"}
    assert without_wall_seconds(ended.out) == {**served, "wall_seconds": None}
    assert (out / "requests.csv").read_bytes() == Path("r.csv").read_bytes()
    for name in ("ttft_cdf.png", "timeline.png"):
        assert (out / "plots" / name).read_bytes().startswith(b"\x89PNG")
    assert not list(Path().rglob("*.tmp"))


def test_run_request_tables_agree_in_both_formats(simulate, scenario, served):
    """CSV and Parquet have the documented columns and equal cells; empty is null."""
    rows = read_csv("r.csv")
    assert [name for name in rows[0] if name != "aged"] == list(REQUEST_COLUMNS)
    assert simulate("run", scenario, "--requests", "r.parquet").code == 0
    table = pq.read_table("r.parquet")
    assert table.column_names == list(rows[0])
    for row, packed in zip(rows, table.to_pylist(), strict=True):
        for name, cell in row.items():
            value = packed[name]
            assert cell == ("" if value is None else str(value)), f"{row['rid']}: {name}"


def test_run_request_table_adds_up_to_the_summary(served):
    """Totals and the mean time to first token can be had from the table."""
    rows = read_csv("r.csv")
    assert sum(int(row["prompt_tokens"]) for row in rows) == served["total_input_tokens"]
    assert sum(int(row["output_tokens"]) for row in rows) == served["total_output_tokens"]
    assert sum(int(row["cached_tokens"]) for row in rows) == served["total_cached_tokens"]
    mean_ttft_ms = sum(float(row["ttft_ms"]) for row in rows) / len(rows)
    assert mean_ttft_ms == pytest.approx(served["mean_ttft_ms"])


def test_run_decision_log_has_a_line_a_step_and_a_line_a_request(served):
    """The same keys in all, steps first and numbered, and the pages add up on every line."""
    lines = read_log("d.jsonl")
    steps = [line for line in lines if line["kind"] == "step"]
    requests = [line for line in lines if line["kind"] == "req"]
    assert lines == steps + requests
    assert [step["step"] for step in steps] == list(range(served["simulated_steps"]))
    assert [line["rid"] for line in requests] == [row["rid"] for row in read_csv("r.csv")]
    assert len({tuple(step) for step in steps}) == len({tuple(line) for line in requests}) == 1
    assert {step["free"] + step["evictable"] + step["used"] for step in steps} == {4096}
    num_prefilled = sum(row[2] for step in steps for row in step["prefill"])
    assert num_prefilled >= served["total_input_tokens"] - served["total_cached_tokens"]


def test_run_packed_decision_log_is_the_plain_one(served, simulate, scenario):
    """A name that ends in .gz compresses, nothing else."""
    assert simulate("run", scenario, "--decisions", "d.jsonl.gz").code == 0
    packed = Path("d.jsonl.gz").read_bytes()
    assert gzip.decompress(packed) == Path("d.jsonl").read_bytes()


def test_run_perfetto_has_slices_that_close(served):
    """Chrome trace events in order of time; every request that begins ends."""
    trace = json.loads(Path("p.json").read_text(encoding="utf-8"))
    events = [event for event in trace["traceEvents"] if "ts" in event]
    assert [event["ts"] for event in events] == sorted(event["ts"] for event in events)
    begun = [event["id"] for event in events if event["ph"] == "b"]
    assert sorted(begun) == sorted(event["id"] for event in events if event["ph"] == "e")
    assert len(set(begun)) == served["submitted"]
    num_steps = sum(event["args"]["steps"] for event in events if event["ph"] == "X")
    assert num_steps == served["simulated_steps"]


def test_run_table_shows_the_summary(simulate, scenario, served):
    """Plain text where stdout is no terminal, nothing on stderr."""
    ended = simulate("run", scenario)
    assert (ended.code, ended.err) == (0, "")
    assert "TTFT" in ended.out
    assert f"{served['mean_ttft_ms']:.2f}" in ended.out
    assert "\x1b" not in ended.out


def test_run_step_by_step_gives_the_same_summary_and_log(served, simulate, scenario):
    """--no-fast-forward changes nothing but the time it takes."""
    ended = simulate(
        *("run", scenario, "--format", "json", "--no-fast-forward", "--decisions", "slow.jsonl")
    )
    assert ended.code == 0
    assert without_wall_seconds(ended.out) == {**served, "wall_seconds": None}
    assert Path("slow.jsonl").read_bytes() == Path("d.jsonl").read_bytes()


def test_run_smoke_scenario_passes_every_check(simulate):
    """--check looks at every invariant after every step, and changes nothing."""
    smoke = REPOSITORY / "scenarios" / "smoke.yaml"
    checked = simulate("run", smoke, "--check", "--format", "json")
    assert (checked.code, checked.err) == (0, "")
    plain = simulate("run", smoke, "--format", "json")
    assert without_wall_seconds(checked.out) == without_wall_seconds(plain.out)
    assert json.loads(plain.out)["completed"] == 200


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("num_requests=2000", "2,000 requests: takes some 0.0 hours, at 2,000 requests a second,"),
        ("num_requests=1999", ""),
    ],
)
def test_run_says_what_a_very_large_workload_takes(simulate, scenario, monkeypatch, workload, said):
    monkeypatch.setattr(sim.commands.run, "_MANY_REQUESTS", 2000)
    ended = simulate("run", scenario, "--set", f"workload.{workload}")
    assert ended.code == 0
    assert ended.err.startswith(f"servetwin: {said}" if said else "")
    assert bool(ended.err) == bool(said)


def test_run_shows_its_progress_while_an_autoscaler_looks_at_idle_replicas(
    simulate, scenario, monkeypatch
):
    """10 requests, and 10,000 looks between one and the next."""
    times = []
    monkeypatch.setattr(Progress, "update", lambda self, done, now_ns: times.append(now_ns))
    autoscale = "{rule: {kind: queue, target: 1}, max_replicas: 2, interval_s: 1, sample_s: 0.01}"
    options = ["workload.num_requests=10", "workload.arrivals.rate_rps=0.01"]
    options.append(f"autoscale={autoscale}")
    words = [word for option in options for word in ("--set", option)]
    assert simulate("run", scenario, *words).code == 0
    assert max(after - before for before, after in pairwise(times)) < 50 * 10**9
