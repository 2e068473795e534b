"""A prompt that can never fit is refused and counted: an outcome, not an error."""

import csv
import json
from pathlib import Path

import pytest


@pytest.fixture
def one_too_long(trace_scenario):
    """The second of three prompts is longer than the context."""
    row = {**json.loads(trace_scenario[1]), "input_length": 2500, "hash_ids": [1, 3, 5, 6, 7]}
    trace_scenario[1] = json.dumps(row)
    Path("trace.jsonl").write_text("\n".join(trace_scenario), encoding="utf-8")
    return "study.yaml"


def request_rows():
    with Path("r.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_run_prompt_longer_than_the_context_is_counted_and_listed(simulate, one_too_long):
    """The others are served as if it were not there; the table says what became of it."""
    ended = simulate("run", one_too_long, "--format", "json", "--requests", "r.csv")
    assert (ended.code, ended.err) == (0, "")
    summary = json.loads(ended.out)
    assert (summary["submitted"], summary["completed"], summary["rejected"]) == (3, 2, 1)
    assert summary["rejected_rids"] == ["1"]
    rows = request_rows()
    assert [row["status"] for row in rows] == ["finished", "rejected", "finished"]
    refused = rows[1]
    assert refused["prompt_tokens"] == "2500"
    assert refused["output_tokens"] == "0"
    assert {refused[name] for name in ("ttft_ms", "tpot_ms", "e2e_latency_ms")} == {""}
    assert "rejected: 1\n" in simulate("run", one_too_long).out


def test_run_all_prompts_rejected_gives_valid_results(simulate, trace_scenario):
    """Undefined numbers are nulls, and every output can be written and read."""
    ended = simulate(
        *("run", "study.yaml", "--set", "scheduler.context_length=64", "--format", "json"),
        *("--out", "out", "--decisions", "d.jsonl", "--requests", "r.csv", "--perfetto", "p.json"),
    )
    assert (ended.code, ended.err) == (0, "")
    summary = json.loads(ended.out)
    assert (summary["completed"], summary["rejected"], summary["simulated_steps"]) == (0, 3, 0)
    assert summary["rejected_rids"] == ["0", "1", "2"]
    for name in ("duration", "mean_ttft_ms", "p99_itl_ms", "request_throughput"):
        assert summary[name] is None
    assert {row["status"] for row in request_rows()} == {"rejected"}
    lines = Path("d.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["req"] * 3
    assert json.loads(Path("p.json").read_text(encoding="utf-8"))["traceEvents"]
    assert Path("out/summary.json").is_file()
    ended = simulate("run", "study.yaml", "--set", "scheduler.context_length=64")
    assert (ended.code, ended.err) == (0, "")
    assert "rejected: 0, 1, 2\n" in ended.out
