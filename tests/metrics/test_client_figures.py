"""What each benchmark's client prints of one log of three requests, by hand."""

import pytest

from sim.metrics.summary import Slo, summarise
from sim.report.summary_text import summary_text
from tests.support.run_logs import request_columns, run_log

MS = 1_000_000


def figures(client, *, first_asked_ms=0, sending_ms=0, limit=None):
    """A warm-up request, then three of 2, 5 and 1 output tokens that were sent from 100 ms on."""
    log = run_log(
        request_columns(
            arrival_ns=[0, 100 * MS, 100 * MS, 700 * MS],
            first_token_ns=[50 * MS, 200 * MS, 300 * MS, 1_000 * MS],
            finish_ns=[90 * MS, 260 * MS, 700 * MS, 1_000 * MS],
            prompt_tokens=[11, 11, 21, 31],
            output_tokens=[9, 2, 5, 1],
            warm_up=[1, 0, 0, 0],
        ),
        gaps=[(60 * MS, 1), (100 * MS, 4)],
        meta={
            "client": {
                "name": client,
                "max_concurrency": 2,
                "request_rate": None,
                "special_tokens": 1,
                "first_asked_ns": first_asked_ms * MS,
                "sending_ns": sending_ms * MS,
            }
        },
    )
    summary = summarise(log, None if limit is None else Slo(ttft_ms=limit))
    text = summary_text(summary)
    assert summary["client_figures"]["program"] in text
    return summary["client_figures"]["figures"]


def test_sglang_figures():
    """The special token of each prompt does not count; a TPOT needs two tokens."""
    found = figures("sglang", limit=150)
    head = found["Serving Benchmark Result"]
    assert head["Successful requests"] == 3
    assert head["Benchmark duration (s)"] == pytest.approx(0.9)
    assert (head["Total input tokens"], head["Total generated tokens"]) == (60, 8)
    assert head["Total token throughput (tok/s)"] == pytest.approx(68 / 0.9)
    assert head["Concurrency"] == pytest.approx((0.16 + 0.6 + 0.3) / 0.9)
    assert head["Peak concurrent requests"] == 3  # all three touch the run's first second
    assert head["SLO attainment (%)"] == pytest.approx(100 / 3)
    assert found["Time to First Token"]["Mean TTFT (ms)"] == pytest.approx(200)
    tpot = found["Time per Output Token (excl. 1st token)"]
    assert tpot["Mean TPOT (ms)"] == pytest.approx(80)
    assert found["Inter-Token Latency"]["Max ITL (ms)"] == 100
    assert found["Inter-Token Latency"]["Mean ITL (ms)"] == pytest.approx(92)


def test_clock_runs_from_the_start_until_all_is_sent_and_answered():
    """vLLM's first request follows a gap; SGLang's client sleeps once more after the last."""
    later = figures("vllm", first_asked_ms=100)["Serving Benchmark Result"]
    assert later["Benchmark duration (s)"] == pytest.approx(1.0)
    slept = figures("sglang", sending_ms=2_000)["Serving Benchmark Result"]
    assert slept["Request throughput (req/s)"] == pytest.approx(1.5)


def test_inferencex_has_rare_percentiles():
    """P99.9 beside the others, and the end-to-end latency last."""
    found = figures("inferencex")
    assert list(found)[-1] == "End-to-end Latency"
    assert found["End-to-end Latency"]["P99.9 E2EL (ms)"] == pytest.approx(599.4, abs=0.1)


def test_aiperf_calls_the_time_per_output_token_inter_token_latency():
    """And the throughput of a user is its inverse."""
    found = figures("aiperf")
    assert found["Inter Token Latency (ms)"]["avg"] == pytest.approx(80)
    assert found["Output Token Throughput Per User (tokens/sec/user)"]["max"] == pytest.approx(
        1e3 / 60
    )
    assert found["Input Sequence Length (tokens)"]["min"] == 10
    assert found["Request Throughput (requests/sec)"] == {"avg": pytest.approx(3 / 0.9)}
