"""From points to rows, settings, tables and files."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sim.metrics.points import mean_interval, t_quantile
from sim.report.figures.key_text import short_names
from sim.report.sweep_tables import sweep_table
from sim.sweep.result_files import _column, remove_results, sweep_json, write_results
from sim.sweep.results import SETTING_METRICS, PointResult, SweepResults

SUMMARY = dict.fromkeys(SETTING_METRICS, 2.0) | {"rejected_rids": [], "saturated": False}


@pytest.mark.parametrize("degrees", [*range(1, 13), 29, 30, 100, 1001])
def test_t_quantile_is_students(degrees):
    """To eleven digits, whether scipy is asked or not."""
    assert t_quantile(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=1e-11)


def test_mean_interval_is_students_and_needs_three_runs():
    """Against scipy; of fewer runs there is no interval."""
    values = [3.0, 5.5, 4.0, 9.0]
    low, high = stats.t.interval(0.95, 3, loc=5.375, scale=stats.sem(values))
    interval = mean_interval(values)
    assert interval.mean == 5.375
    assert interval.half_width == pytest.approx((high - low) / 2)
    assert mean_interval([1.0, 2.0]).half_width is None
    assert mean_interval([]).mean is None


@pytest.fixture
def results():
    """Two settings with three seeds; one point of the second setting failed."""
    points = []
    for t_ms in (None, 50):
        for seed in (1, 2, 3):
            values = {"scheduler.fairness.t_ms": t_ms, "scheduler.mix": [t_ms, "a,b"], "seed": seed}
            bad = (t_ms, seed) == (50, 3)
            summary = SUMMARY | {"mean_ttft_ms": 10.0 * seed, "p99_ttft_ms": None}
            points.append(
                PointResult(values, "a.json", "bad input", message="it is\nbad")
                if bad
                else PointResult(values, "b.json", "done", summary)
            )
    keys = ("scheduler.fairness.t_ms", "scheduler.mix", "seed")
    return SweepResults.of("study", {"name": "study"}, keys, points)


def test_sweep_results_fold_seeds(results):
    """One entry a setting: null is a value; a failed point is counted, not averaged."""
    first, second = json.loads(sweep_json(results))["settings"]
    assert first["settings"] == {"scheduler.fairness.t_ms": None, "scheduler.mix": [None, "a,b"]}
    assert first["metrics"]["mean_ttft_ms"]["mean"] == 20.0
    assert first["metrics"]["mean_ttft_ms"]["half_width"] == pytest.approx(24.8414, abs=1e-4)
    assert first["metrics"]["p99_ttft_ms"]["count"] == 0
    assert (second["num_points"], second["num_failed"]) == (3, 1)
    assert second["metrics"]["mean_ttft_ms"]["mean"] == 15.0
    assert second["metrics"]["mean_ttft_ms"]["half_width"] is None


def test_sweep_table_has_a_row_a_setting(results):
    """Keys by their last words, runs that failed, half-widths where there are three runs.

    A metric that no run has gets no column.
    """
    lines = [line.split() for line in sweep_table(results).text().splitlines()]
    assert lines[0][:3] == ["t_ms", "mix", "runs"]
    assert lines[2] == [
        *("null", "[null,", '"a,b"]', "3", "20.00", "±", "24.84", "2.00", "±", "0.00"),
        *("2.00", "±", "0.00", "2.00", "±", "0.00"),
    ]
    assert lines[3] == ["50", "[50,", '"a,b"]', "2/3", "15.00", "2.00", "2.00", "2.00"]


def test_short_names_stay_different():
    """No longer than needed to tell keys apart."""
    names = short_names(["a.x.kind", "b.x.kind", "a.t_ms", "replicas"])
    assert list(names.values()) == ["a.x.kind", "b.x.kind", "t_ms", "replicas"]


def test_sweep_settings_too_large_for_parquet_are_text(results, tmp_path):
    """As in columns with several types."""
    values = {**results.points[0].values, "scheduler.fairness.t_ms": 10**30}
    points = [results.points[0]._replace(values=values), *results.points[1:]]
    write_results(SweepResults.of("study", results.scenario, results.keys, points), tmp_path)
    table = pq.read_table(tmp_path / "results.parquet").to_pydict()
    assert table["scheduler.fairness.t_ms"][0] == f"1{'0' * 30}"


@given(
    st.sampled_from(
        (st.booleans(), st.integers(-(2**63) + 1, 2**63 - 1), st.floats(), st.text(), st.none())
    ).flatmap(lambda kind: st.lists(st.none() | kind, min_size=1))
)
def test_column_of_parquet_is_as_pyarrow_makes_it(values):
    """Of values of one type, some of them missing."""
    kind = pa.string() if set(values) == {None} else None
    wanted, made = pa.array(values, kind), _column(values)
    made.validate(full=True)
    assert (made.type, made.null_count) == (wanted.type, wanted.null_count)
    assert repr(made.to_pylist()) == repr(wanted.to_pylist())


def test_sweep_files_hold_a_row_a_point(results, tmp_path):
    """The three files say the same; lists of a summary are left out."""
    write_results(results, tmp_path)
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["point"] for row in rows] == list("123456")
    assert list(rows[0])[:5] == ["point", *results.keys, "status"]
    assert (rows[0]["scheduler.fairness.t_ms"], rows[3]["scheduler.fairness.t_ms"]) == ("", "50")
    assert json.loads(rows[0]["scheduler.mix"]) == [None, "a,b"]
    assert (rows[0]["saturated"], rows[5]["saturated"]) == ("false", "")
    assert rows[5]["error"] == "it is\nbad"
    assert "rejected_rids" not in rows[0]
    table = pq.read_table(tmp_path / "results.parquet").to_pydict()
    assert table["mean_ttft_ms"] == [10.0, 20.0, 30.0, 10.0, 20.0, None]
    assert table["scheduler.fairness.t_ms"] == [None, None, None, 50, 50, 50]
    assert json.loads((tmp_path / "results.json").read_text())["points"][5]["error"] == "it is\nbad"
    assert (tmp_path / "results.json").read_text() == sweep_json(results)
    remove_results(tmp_path)
    assert list(tmp_path.iterdir()) == []
