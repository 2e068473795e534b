"""The summary against a computation by hand, request by request."""

import json
import statistics

import numpy as np
import pytest

from sim.metrics.summary import Slo, summarise
from tests.support.run_logs import request_columns, run_log, step_columns
from tests.support.toy_server import toy_log

MS = 1_000_000


def small_log():
    """Four requests: two finished, one rejected, one that never got its first token."""
    requests = request_columns(
        status=["finished", "finished", "rejected", "running"],
        arrival_ns=[100 * MS, 200 * MS, 250 * MS, 300 * MS],
        scheduled_ns=[110 * MS, 240 * MS, -1, 900 * MS],
        first_token_ns=[150 * MS, 300 * MS, -1, -1],
        finish_ns=[1_100 * MS, 300 * MS, -1, -1],
        prompt_tokens=[100, 200, 999, 300],
        cached_tokens=[0, 150, 0, 30],
        output_tokens=[11, 1, 0, 0],
        retractions=[2, 0, 0, 1],
        preemptions=[0, 0, 0, 3],
    )
    steps = step_columns(t_start_ns=[110 * MS, 240 * MS], t_end_ns=[200 * MS, 1_200 * MS],
                         num_steps=[1, 10])  # fmt: skip
    return run_log(requests, steps, gaps=[(95 * MS, 10)], meta={"wall_seconds": 0.25})


def test_summary_of_small_log_equals_hand_computation():
    """Every number of a log small enough to check on paper."""
    summary = summarise(small_log())
    assert summary["duration"] == 1.0
    assert (summary["completed"], summary["submitted"]) == (2, 4)
    assert summary["request_rate"] == pytest.approx(3 / 0.2)
    assert (summary["rejected"], summary["aborted"], summary["unfinished"]) == (1, 0, 1)
    assert summary["rejected_rids"] == ["r2"]
    assert (summary["total_input_tokens"], summary["total_output_tokens"]) == (300, 12)
    assert (summary["request_throughput"], summary["total_throughput"]) == (2.0, 312.0)
    assert (summary["input_throughput"], summary["output_throughput"]) == (300.0, 12.0)
    assert summary["concurrency"] == pytest.approx(1.0 + 0.1)
    assert summary["mean_ttft_ms"] == pytest.approx((50 + 100) / 2)
    assert summary["mean_tpot_ms"] == summary["p99_tpot_ms"] == pytest.approx(95.0)
    assert (summary["mean_itl_ms"], summary["std_itl_ms"]) == (95.0, 0.0)
    assert summary["max_itl_ms"] == 95.0
    assert summary["mean_queue_time_ms"] == pytest.approx(25.0)
    assert summary["max_queue_time_ms"] == pytest.approx(40.0)
    assert summary["queue_time"]["max_ms"] == summary["max_queue_time_ms"]
    assert summary["max_wait_ms"] == pytest.approx(600.0)
    assert summary["total_cached_tokens"] == 180
    assert summary["cache_hit_rate_pct"] == pytest.approx(100 * 180 / 600)
    assert (summary["retractions"], summary["preemptions"]) == (3, 3)
    assert (summary["simulated_steps"], summary["wall_seconds"]) == (11, 0.25)


def test_summary_names_start_as_the_serving_benchmark_has_them():
    """Tools that read SGLang's benchmark output find the names in the same order."""
    names = list(summarise(small_log()))
    assert names[:10] == [
        "duration", "completed", "total_input_tokens", "total_output_tokens", "request_throughput",
        "input_throughput", "output_throughput", "total_throughput", "concurrency", "mean_ttft_ms",
    ]  # fmt: skip
    latencies = [
        f"{name}_{metric}_ms"
        for metric in ("ttft", "tpot", "itl", "e2e_latency")
        for name in ("mean", "median", "std", "p90", "p95", "p99")
    ]
    assert names[9:33] == latencies
    assert names[33:38] == [
        "goodput_slos_ms", "request_goodput", "slo_attainment",
        "total_cached_tokens", "cache_hit_rate_pct",
    ]  # fmt: skip


def test_latencies_of_a_run_equal_brute_force():
    """Python loops over a few hundred requests agree with the columns."""
    log = toy_log(300, rate_rps=10)
    rows, summary = log.requests, summarise(log)
    ttft_ms = [(f - a) / 1e6 for a, f in zip(rows.arrival_ns, rows.first_token_ns, strict=True)]
    tpot_ms = [
        (finish - first) / 1e6 / (output - 1)
        for first, finish, output in zip(
            rows.first_token_ns, rows.finish_ns, rows.output_tokens, strict=True
        )
        if output > 1
    ]
    assert summary["mean_ttft_ms"] == pytest.approx(statistics.fmean(ttft_ms))
    assert summary["std_ttft_ms"] == pytest.approx(statistics.pstdev(ttft_ms))
    assert summary["p99_ttft_ms"] == pytest.approx(float(np.percentile(ttft_ms, 99)))
    assert summary["median_tpot_ms"] == pytest.approx(statistics.median(tpot_ms))
    assert summary["p95_tpot_ms"] == pytest.approx(float(np.percentile(tpot_ms, 95)))


@pytest.mark.parametrize("log", [run_log(request_columns()), run_log(request_columns(
    status=["rejected"], arrival_ns=[5]))], ids=["empty", "all rejected"])  # fmt: skip
def test_summary_without_finished_requests_is_valid_json_with_nulls(log):
    """Undefined values are null: NaN is no JSON."""
    summary = json.loads(json.dumps(summarise(log, Slo(ttft_ms=1.0)), allow_nan=False))
    assert summary["completed"] == 0
    for name in ("duration", "request_throughput", "concurrency", "p99_ttft_ms", "mean_itl_ms",
                 "cache_hit_rate_pct", "max_wait_ms", "saturated", "request_goodput"):  # fmt: skip
        assert summary[name] is None, name


@pytest.mark.parametrize(
    ("slo", "num_good"),
    [
        (Slo(ttft_ms=100.0), 2),
        (Slo(ttft_ms=99.0), 1),
        (Slo(tpot_ms=94.0), 1),
        (Slo(ttft_ms=99.0, tpot_ms=94.0), 0),
        (Slo(e2e_latency_ms=100.0), 1),
    ],
)
def test_goodput_counts_requests_that_meet_every_part(slo, num_good):
    """A limit met exactly is met; one output token has no TPOT to miss; the lost ones miss."""
    summary = summarise(small_log(), slo)
    assert summary["request_goodput"] == num_good / 1.0
    assert summary["slo_attainment"] == num_good / 4
    assert summary["goodput_slos_ms"] == slo.limits_ms()


def test_goodput_without_slo_is_undefined():
    """No promise, no goodput."""
    summary = summarise(small_log())
    assert summary["goodput_slos_ms"] == {}
    assert summary["request_goodput"] is summary["slo_attainment"] is None
