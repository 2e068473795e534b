"""Files of a run: complete, deterministic, and one error line if they cannot be written."""

import csv
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sim.core.errors import InputError
from sim.core.files import atomic_path, write_text
from sim.metrics.summary import summarise
from sim.report.run_folder import summary_json, write_out_dir, write_requests
from tests.support.run_logs import request_columns, run_log
from tests.support.toy_server import toy_log

COLUMNS = [
    "rid", "arrival_s", "ttft_ms", "tpot_ms", "e2e_latency_ms", "queue_time_ms", "prompt_tokens",
    "cached_tokens", "output_tokens", "retractions", "preemptions", "aged", "replica", "tenant",
    "status",
]  # fmt: skip


def small_log():
    return run_log(
        request_columns(
            rid=["a,b", "c"], tenant=["", "é"], arrival_ns=[1_500_000, 2_000_000],
            scheduled_ns=[2_500_000, -1], first_token_ns=[3_000_000, -1],
            finish_ns=[5_000_000, -1], output_tokens=[3, 0], prompt_tokens=[10, 20],
        )
    )  # fmt: skip


def test_csv_of_requests_has_empty_cells_where_undefined(tmp_path):
    """Exact names, numbers in full, nothing invented for the request that never ran."""
    write_requests(small_log(), tmp_path / "r.csv")
    with (tmp_path / "r.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == COLUMNS
    assert (rows[0]["rid"], rows[0]["arrival_s"], rows[0]["ttft_ms"]) == ("a,b", "0.0015", "1.5")
    assert (rows[0]["tpot_ms"], rows[0]["e2e_latency_ms"]) == ("1.0", "3.5")
    assert (rows[1]["ttft_ms"], rows[1]["queue_time_ms"], rows[1]["tenant"]) == ("", "", "é")
    assert rows[1]["status"] == "waiting"


def test_csv_of_many_requests_is_whole_and_made_in_parts(tmp_path):
    """Every row once and in order, across the parts; no more memory than its columns take."""
    size = 25_001
    values = range(1_000, 1_000 + size)
    names = ("arrival_ns", "scheduled_ns", "first_token_ns", "finish_ns", "prompt_tokens",
             "cached_tokens", "output_tokens")  # fmt: skip
    log = run_log(request_columns(**dict.fromkeys(names, values)))
    tracemalloc.start()
    try:
        write_requests(log, tmp_path / "r.csv")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    with (tmp_path / "r.csv").open(encoding="utf-8", newline="") as file:
        assert [row["rid"] for row in csv.DictReader(file)] == log.requests.rid
    # The computed columns take 77 bytes a row. All cells as objects would take 370.
    assert peak_bytes < 150 * size


def test_parquet_and_csv_hold_the_same_table(tmp_path):
    """Two suffixes, one table; undefined is null."""
    write_requests(small_log(), tmp_path / "r.csv")
    write_requests(small_log(), tmp_path / "r.parquet")
    table = pq.read_table(tmp_path / "r.parquet")
    assert table.column_names == COLUMNS
    with (tmp_path / "r.csv").open(encoding="utf-8", newline="") as file:
        for row, stored in zip(csv.DictReader(file), table.to_pylist(), strict=True):
            assert row == {name: "" if v is None else str(v) for name, v in stored.items()}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files_of_requests_written_twice_have_equal_bytes(tmp_path, suffix):
    """Same log, same bytes."""
    log = toy_log(50, rate_rps=10)
    for name in ("a", "b"):
        write_requests(log, tmp_path / f"{name}{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_frame_of_requests_has_the_same_columns():
    """What notebooks see is what files hold."""
    from servetwin.frames import request_frame  # noqa: PLC0415

    frame = request_frame(small_log())
    assert list(frame.columns) == COLUMNS
    assert frame.ttft_ms[0] == 1.5
    assert np.isnan(frame.ttft_ms[1])


def test_frame_of_steps_names_modes_and_units():
    """One row a run, modes in words, durations in ms."""
    from servetwin.frames import step_frame  # noqa: PLC0415

    log = toy_log(20, rate_rps=10)
    frame = step_frame(log)
    assert len(frame) == len(log.steps.num_steps)
    assert set(frame["mode"]) == {"extend", "decode"}
    assert frame.device_ms.sum() == pytest.approx(log.steps.device_ns.sum() / 1e6)
    assert (frame.t_end_s > frame.t_start_s).all()


def test_summary_file_is_the_summary(tmp_path):
    """Valid JSON in the summary's order."""
    summary = summarise(small_log())
    write_text(tmp_path / "s.json", summary_json(summary))
    read = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    assert read == summary
    assert list(read) == list(summary)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("r.xlsx", r"r\.xlsx: unknown suffix '\.xlsx', expected \.csv or \.parquet"),
        ("none", "none: unknown suffix ''"),
        ("gone/r.csv", r"r\.csv: its folder .*gone does not exist"),
        ("dir.csv", r"dir\.csv: is a folder"),
    ],
)
def test_file_that_cannot_be_written_is_refused_in_one_line(tmp_path, name, reason):
    """The message names the file; nothing is left behind."""
    (tmp_path / "dir.csv").mkdir()
    with pytest.raises(InputError, match=reason) as caught:
        write_requests(small_log(), tmp_path / name)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["dir.csv"]


def test_write_that_fails_midway_keeps_the_old_file(tmp_path):
    """Half a file never takes the old one's place."""
    target = tmp_path / "a.txt"
    target.write_text("old")

    def write_half():
        with atomic_path(target) as beside:
            beside.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_out_directory_has_all_files_and_keeps_foreign_ones(tmp_path):
    """Made if missing, refreshed if there, other files untouched."""
    out = tmp_path / "out"
    for num_requests in (30, 40):
        log = toy_log(num_requests, rate_rps=10)
        write_out_dir(log, summarise(log), out, {"name": "a"})
        (out / "notes.txt").write_text("mine")
    names = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert names == [
        "notes.txt", "plots/timeline.png", "plots/ttft_cdf.png", "requests.csv",
        "requests.parquet", "scenario.json", "summary.json", "timeline.csv",
    ]  # fmt: skip
    assert json.loads((out / "summary.json").read_text())["completed"] == 40
    assert pq.read_table(out / "requests.parquet").num_rows == 40


def test_out_directory_interrupted_has_no_summary(tmp_path, monkeypatch):
    """Where there is a summary, everything is of one run."""
    out = tmp_path / "out"
    log = toy_log(30, rate_rps=10)
    write_out_dir(log, summarise(log), out, {"name": "a"})
    monkeypatch.setattr(
        "sim.report.run_folder._write_plots", lambda *_: (_ for _ in ()).throw(OSError)
    )
    with pytest.raises(OSError):
        write_out_dir(log, summarise(log), out, {"name": "a"})
    assert not (out / "summary.json").exists()


@pytest.mark.parametrize(
    ("name", "reason"), [("file", "is a file, not a folder"), ("a/b", "does not exist")]
)
def test_out_directory_that_cannot_be_made_is_refused(tmp_path, name, reason):
    """A file in its place, or no parent."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=reason):
        write_out_dir(small_log(), summarise(small_log()), Path(tmp_path / name), {})
