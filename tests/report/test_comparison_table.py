"""Runs side by side as a user reads them."""

import subprocess
import sys

import pytest

from sim.metrics.summary import Slo, summarise
from sim.report.summary_text import comparison_table
from tests.support.toy_server import toy_log


@pytest.fixture(scope="module")
def summary():
    return summarise(toy_log(200, rate_rps=10), Slo(ttft_ms=300))


def test_comparison_text_has_differences_to_the_first_run(summary):
    """Relative for numbers, in points for percentages, none where nothing changed."""
    other = summary | {
        "mean_ttft_ms": summary["mean_ttft_ms"] * 1.5,
        "cache_hit_rate_pct": summary["cache_hit_rate_pct"] - 2.0,
    }
    text = comparison_table({"base": summary, "lpm [x]": other}).text()
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "lpm [x]" in text.splitlines()[0]
    assert lines["TTFT mean"].endswith("+50.0 %")
    assert lines["cache hit rate"].endswith("-2.0 pp")
    assert lines["TTFT p99"].endswith(" 0.0 %")


def test_comparison_text_without_baseline_value_has_no_difference(summary):
    """What is undefined or zero in the first run cannot be divided by."""
    base = summary | {"p99_ttft_ms": None, "retractions": 0}
    other = summary | {"p99_ttft_ms": 5.0, "retractions": 3}
    lines = comparison_table({"a": base, "b": other}).text().splitlines()
    assert next(line for line in lines if line.startswith("TTFT p99")).split()[-2:] == ["-", "5.00"]
    assert next(line for line in lines if line.startswith("retractions")).split()[-2:] == ["0", "3"]


def test_report_of_a_run_loads_neither_pandas_nor_matplotlib():
    """Every run prints a summary; none should wait for plotting libraries."""
    script = (
        "import sys, sim.report, sim.metrics.summary, sim.report.summary_text,"
        " sim.report.run_folder, sim.report.perfetto, sim.report.progress;"
        "print({'pandas', 'matplotlib', 'pyarrow', 'scipy'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
