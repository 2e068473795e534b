"""One run's summary as a user reads it."""

import re

import pytest

from sim.metrics.summary import Slo, summarise
from sim.report.summary_text import summary_text
from sim.tables.table import number
from tests.support.run_logs import request_columns, run_log
from tests.support.toy_server import toy_log


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


def test_summary_text_of_nothing_finished_has_no_latencies_and_names_the_rejected():
    """A table of dashes is left out; who was rejected is named, brackets and all."""
    requests = request_columns(rid=["[red]"] + ["x"] * 11, status=["rejected"] * 12,
                               arrival_ns=[0] * 12)  # fmt: skip
    text = summary_text(summarise(run_log(requests)))
    assert "TTFT" not in text
    assert text.splitlines()[0].split() == ["requests/s", "-", "submitted", "12"]
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


def test_text_holds_the_slo_s_percentile_against_its_limit():
    """The percentile is the scenario's choice; goodput does not depend on it."""
    log = toy_log(200, rate_rps=10)
    texts = [summary_text(summarise(log, Slo(ttft_ms=t, percentile=p))) for t, p in
             ((300, 90), (1, 50))]  # fmt: skip
    assert re.search(r"^SLO: TTFT p90 [\d.]+ ms of 300 ms: met$", texts[0], re.MULTILINE)
    assert re.search(r"^SLO: TTFT median [\d.]+ ms of 1 ms: missed$", texts[1], re.MULTILINE)
