"""One run's summary as a user reads it."""

import pytest

from sim.report.metrics import Slo, summarise
from sim.report.numbers import number
from sim.report.summary_text import summary_text
from sim.report.text_table import aligned, headed_table
from sim.testing.run_logs import request_columns, run_log
from sim.testing.toy_server import toy_log


@pytest.fixture(scope="module")
def summary():
    return summarise(toy_log(200, rate_rps=10), Slo(ttft_ms=300))


def test_summary_text_has_latencies_and_rates(summary):
    """Rows have the summary's numbers, without escape sequences or trailing blanks."""
    text = summary_text(summary)
    rows = {line[:12].strip(): line[12:].split() for line in text.splitlines()}
    names = ("mean", "median", "p90", "p95", "p99")
    assert rows["TTFT"] == [number(summary[f"{name}_ttft_ms"]) for name in names]
    assert rows["queue time"] == [number(summary[f"{name}_queue_time_ms"]) for name in names]
    assert "SLO met %" in text
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_summary_text_is_the_same_in_every_terminal(summary, monkeypatch):
    """Neither the window's width nor its colours change what a script reads."""
    plain = summary_text(summary)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert summary_text(summary) == plain


def test_summary_text_of_nothing_finished_shows_dashes_and_rejected_requests():
    """Undefined is a dash; who was rejected is named, brackets and all."""
    requests = request_columns(rid=["[red]"] + ["x"] * 11, status=["rejected"] * 12,
                               arrival_ns=[0] * 12)  # fmt: skip
    text = summary_text(summarise(run_log(requests)))
    assert text.splitlines()[2].split() == ["TTFT", "-", "-", "-", "-", "-"]
    assert "rejected: [red], x, x, x, x, x, x, x, x, x and 2 more" in text
    assert "nan" not in text.lower()


def test_summary_text_bold_changes_headings_only(summary):
    """Escape sequences around the line of headings; the rest is the same text."""
    heading, *rest = summary_text(summary, bold=True).splitlines()
    plain_heading, *plain_rest = summary_text(summary).splitlines()
    assert heading == f"\x1b[1m{plain_heading}\x1b[0m"
    assert rest == plain_rest


def test_summary_text_of_strange_names_keeps_lines_and_terminal_whole():
    """A trace may call a request or a tenant anything; line ends and escapes are spelled out."""
    names = ["a\nb", "\x1b[2J"]
    requests = request_columns(rid=names, tenant=names, status=["rejected"] * 2, arrival_ns=[0] * 2)
    text = summary_text(summarise(run_log(requests)))
    assert "rejected: a\\nb, \\x1b[2J" in text
    assert "\x1b" not in text


def test_headed_table_aligns_columns_as_wide_as_their_cells():
    """Flush left, then flush right; a rule as wide as all; wide characters count as two."""
    rows = [["a", "1"], ["日本", "22,222"], ["e\u0301x", "-"]]
    assert headed_table(["name", "n"], rows, bold=False) == [
        "name        n",
        "─" * 13,
        "a           1",
        "日本   22,222",
        "e\u0301x          -",
    ]


def test_aligned_minimum_width_holds_for_right_columns_only():
    """The first column is as wide as it must be; nothing hangs over at the end of a line."""
    assert aligned([["a", "b", "c"]], gap=1, right={1}, min_width=4) == ["a    b c"]
    assert aligned([["a", "b", ""]], gap=2, right=set()) == ["a  b"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (12_345, "12,345"), (0.0, "0.00"), (1.234, "1.23"), (12.34, "12.34"),
     (123.45, "123.5"), (1_234.5, "1,234"), (-5.0, "-5.00")],
)  # fmt: skip
def test_number_has_three_digits_or_more(value, text):
    """Whole numbers in full, others rounded."""
    assert number(value) == text
