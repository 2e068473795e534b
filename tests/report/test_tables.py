"""Tables as a user reads them."""

import subprocess
import sys

import pytest

from sim.report.metrics import Slo, summarise
from sim.report.tables import comparison_table, number, summary_table, to_text
from sim.testing.run_logs import request_columns, run_log
from sim.testing.toy_server import toy_log


@pytest.fixture(scope="module")
def summary():
    return summarise(toy_log(200, rate_rps=10), Slo(ttft_ms=300))


def test_summary_text_has_latencies_and_rates(summary):
    """Rows have the summary's numbers, without escape sequences or trailing blanks."""
    text = to_text(summary_table(summary))
    rows = {line[:12].strip(): line[12:].split() for line in text.splitlines()}
    names = ("mean", "median", "p90", "p95", "p99")
    assert rows["TTFT"] == [number(summary[f"{name}_ttft_ms"]) for name in names]
    assert rows["queue time"] == [number(summary[f"{name}_queue_time_ms"]) for name in names]
    assert "SLO met %" in text
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_summary_text_is_the_same_in_every_terminal(summary, monkeypatch):
    """Neither the window's width nor its colours change what a script reads."""
    plain = to_text(summary_table(summary))
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert to_text(summary_table(summary)) == plain


def test_summary_text_of_nothing_finished_shows_dashes_and_rejected_requests():
    """Undefined is a dash; who was rejected is named, brackets and all."""
    requests = request_columns(rid=["[red]"] + ["x"] * 11, status=["rejected"] * 12,
                               arrival_ns=[0] * 12)  # fmt: skip
    text = to_text(summary_table(summarise(run_log(requests))))
    assert text.splitlines()[2].split() == ["TTFT", "-", "-", "-", "-", "-"]
    assert "rejected: [red], x, x, x, x, x, x, x, x, x and 2 more" in text
    assert "nan" not in text.lower()


def test_comparison_text_has_differences_to_the_first_run(summary):
    """Relative for numbers, in points for percentages, none where nothing changed."""
    other = summary | {
        "mean_ttft_ms": summary["mean_ttft_ms"] * 1.5,
        "cache_hit_rate_pct": summary["cache_hit_rate_pct"] - 2.0,
    }
    text = to_text(comparison_table({"base": summary, "lpm [x]": other}))
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "lpm [x]" in text.splitlines()[0]
    assert lines["TTFT mean"].endswith("+50.0 %")
    assert lines["cache hit rate"].endswith("-2.0 pp")
    assert lines["TTFT p99"].endswith(" 0.0 %")


def test_comparison_text_without_baseline_value_has_no_difference(summary):
    """What is undefined or zero in the first run cannot be divided by."""
    base = summary | {"p99_ttft_ms": None, "retractions": 0}
    other = summary | {"p99_ttft_ms": 5.0, "retractions": 3}
    lines = to_text(comparison_table({"a": base, "b": other})).splitlines()
    assert next(line for line in lines if line.startswith("TTFT p99")).split()[-2:] == ["-", "5.00"]
    assert next(line for line in lines if line.startswith("retractions")).split()[-2:] == ["0", "3"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (12_345, "12,345"), (0.0, "0.00"), (1.234, "1.23"), (12.34, "12.34"),
     (123.45, "123.5"), (1_234.5, "1,234"), (-5.0, "-5.00")],
)  # fmt: skip
def test_number_has_three_digits_or_more(value, text):
    """Whole numbers in full, others rounded."""
    assert number(value) == text


def test_report_of_a_run_loads_neither_pandas_nor_matplotlib():
    """Every run prints a summary; none should wait for plotting libraries."""
    script = (
        "import sys, sim.report, sim.report.metrics, sim.report.tables, sim.report.files,"
        " sim.report.perfetto, sim.report.progress;"
        "print({'pandas', 'matplotlib', 'pyarrow', 'scipy'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
