"""Hits in host memory are shown, and only if the run has host memory."""

import csv
import io
import json

import pytest

from servetwin.frames import request_frame, step_frame
from sim.metrics.summary import request_table, summarise
from sim.report.run_folder import read_run, write_out_dir, write_requests
from sim.report.summary_text import comparison_table, summary_text
from sim.runlog.decisions import request_lines
from tests.support.run_logs import request_columns, run_log, step_columns

REQUESTS = request_columns(
    arrival_ns=[0, 0, 0, 0],
    scheduled_ns=[5, 5, 9, -1],
    first_token_ns=[10, 10, 20, -1],
    finish_ns=[10, 10, 20, -1],
    prompt_tokens=[100, 200, 100, 50],
    cached_tokens=[0, 150, 50, 7],
    host_cached_tokens=[0, 80, 0, 7],
    output_tokens=[1, 1, 1, 0],
    status=["finished", "finished", "finished", "waiting"],
)
STEPS = step_columns(
    num_steps=[1, 1], t_end_ns=[10, 20], num_loaded_tokens=[80, 16], host_used_tokens=[0, 640]
)


@pytest.fixture
def tiered():
    return run_log(REQUESTS, STEPS, meta={"host_cache_tokens": 1_000})


@pytest.fixture
def plain():
    return run_log(REQUESTS, STEPS)


def test_summary_tells_host_hits_apart(tiered, plain):
    """Of 400 admitted prompt tokens 200 were cached, 80 of them in host memory."""
    summary = summarise(tiered)
    assert (summary["total_cached_tokens"], summary["cache_hit_rate_pct"]) == (200, 50.0)
    assert (summary["total_host_cached_tokens"], summary["host_hit_rate_pct"]) == (80, 20.0)
    assert summary["total_loaded_tokens"] == 96
    assert set(summary) - set(summarise(plain)) == {
        "total_host_cached_tokens",
        "host_hit_rate_pct",
        "total_loaded_tokens",
    }


def test_tables_have_host_hits_where_there_are_any(tiered, plain):
    """One run, and two of which one has no host memory."""
    text = " ".join(summary_text(summarise(tiered)).split())
    assert "from host memory % 20.00 tokens loaded 96" in text
    assert "host memory" not in summary_text(summarise(plain))
    both = comparison_table({"off": summarise(plain), "on": summarise(tiered)}).text()
    row = next(line for line in both.splitlines() if "from host memory" in line)
    assert row.split()[-3:] == ["%", "-", "20.00"]


def test_request_tables_have_a_column_for_it(tiered, plain, tmp_path):
    """Beside all cached tokens; in files and frames."""
    names = list(request_table(tiered))
    assert names[names.index("cached_tokens") + 1] == "host_cached_tokens"
    assert "host_cached_tokens" not in request_table(plain)
    write_requests(tiered, tmp_path / "requests.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "requests.csv").read_text())))
    assert [row["host_cached_tokens"] for row in rows] == ["0", "80", "0", "7"]
    assert request_frame(tiered)["host_cached_tokens"].sum() == 87
    assert step_frame(tiered)["num_loaded_tokens"].tolist() == [80, 16]
    assert step_frame(tiered)["host_used_tokens"].tolist() == [0, 640]


def test_decision_log_requests_have_a_key_for_it(tiered, plain):
    """Next to `cached_at_admit`; without host memory the line is what it ever was."""
    lines = list(request_lines(tiered))
    assert [line.pop("host_cached_at_admit") for line in lines] == [0, 80, 0, 7]
    assert json.dumps(lines) == json.dumps(list(request_lines(plain)))


def test_run_folder_gives_host_hits_back(tiered, plain, tmp_path):
    """Zeros where the run had no host memory."""
    for name, log, cached in (("on", tiered, [0, 80, 0, 7]), ("off", plain, [0] * 4)):
        write_out_dir(log, summarise(log), tmp_path / name, {"name": name})
        assert read_run(tmp_path / name).log.requests.host_cached_tokens.tolist() == cached
