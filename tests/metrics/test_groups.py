"""Metrics of tenants, hot and cold requests: against sums by hand, and for any values."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.metrics.groups import group_metrics, jain_index
from sim.metrics.summary import summarise
from sim.report.summary_text import summary_text
from tests.support.run_logs import request_columns, run_log
from tests.support.toy_server import toy_log

MS = 1_000_000
SECOND = 1_000 * MS


def two_tenants():
    """Tenant a: three finished, one of them hot; b: one finished, one rejected, one waiting."""
    return run_log(
        request_columns(
            tenant=["a", "b", "a", "b", "a", "b"],
            status=["finished", "finished", "finished", "rejected", "finished", "waiting"],
            arrival_ns=[0, 0, SECOND, SECOND, 2 * SECOND, 3 * SECOND],
            scheduled_ns=[10 * MS, 400 * MS, SECOND + 20 * MS, -1, 2 * SECOND + 30 * MS, -1],
            first_token_ns=[100 * MS, 600 * MS, SECOND + 200 * MS, -1, 2 * SECOND + 300 * MS, -1],
            finish_ns=[SECOND, 4 * SECOND, 2 * SECOND, -1, 3 * SECOND, -1],
            prompt_tokens=[100, 100, 100, 100, 100, 100],
            cached_tokens=[0, 49, 50, 0, 10, 0],
            output_tokens=[10, 20, 11, 0, 1, 0],
            aged=[0, 1, 0, 0, 0, 1],
        )
    )


def test_tenants_equal_hand_computation():
    """Every measure of two tenants, on paper; the run lasts four seconds."""
    tenants = summarise(two_tenants())["tenants"]
    assert list(tenants) == ["a", "b"]
    a, b = tenants["a"], tenants["b"]
    assert (a["submitted"], a["completed"], b["submitted"], b["completed"]) == (3, 3, 3, 1)
    assert (a["request_throughput"], b["request_throughput"]) == (3 / 4, 1 / 4)
    assert (a["output_throughput"], b["output_throughput"]) == (22 / 4, 20 / 4)
    assert (a["mean_ttft_ms"], a["median_ttft_ms"], a["max_ttft_ms"]) == (200.0, 200.0, 300.0)
    assert a["p99_ttft_ms"] == pytest.approx(298.0)
    assert a["mean_tpot_ms"] == pytest.approx((100 + 80) / 2)
    assert b["p99_tpot_ms"] == pytest.approx(3_400 / 19)
    assert (a["mean_e2e_latency_ms"], b["p99_e2e_latency_ms"]) == (1_000.0, 4_000.0)
    assert (a["cache_hit_rate_pct"], b["cache_hit_rate_pct"]) == (20.0, 49.0)
    # The waiting request waits until the log's end. The rejected request does not wait.
    assert (a["max_wait_ms"], b["max_wait_ms"]) == (30.0, 1_000.0)
    assert (a["aged"], b["aged"]) == (0, 2)


def test_hot_is_half_cached_at_first_admission():
    """50 of 100 is hot, 49 is not; who was never admitted is neither."""
    summary = summarise(two_tenants())
    hot, cold = summary["hot"], summary["cold"]
    assert (hot["completed"], hot["mean_ttft_ms"], hot["cache_hit_rate_pct"]) == (1, 200.0, 50.0)
    assert (cold["submitted"], cold["mean_ttft_ms"]) == (3, pytest.approx(1_000 / 3))
    assert cold["max_wait_ms"] == 400.0


def test_evenness_equals_hand_computation():
    """TTFT 200 and 600 ms; a is served in 3 s what it sent in 2, b a third of 3 s in 4."""
    summary = summarise(two_tenants())
    assert summary["jain_ttft"] == pytest.approx(800**2 / (2 * (200**2 + 600**2)))
    a, b = 2 / 3, (1 / 3) * (3 / 4)
    assert summary["jain_throughput"] == pytest.approx((a + b) ** 2 / (2 * (a * a + b * b)))
    assert summary["slowest_5pct_ttft_share_pct"] == pytest.approx(100 * 600 / 1_200)


@pytest.mark.parametrize(("size", "num_slowest"), [(20, 1), (21, 2), (100, 5)])
def test_slowest_share_rounds_requests_up(size, num_slowest):
    """TTFT 1, 2, ..., n ms in any order."""
    ttft_ms = np.random.default_rng(size).permutation(size) + 1
    log = run_log(
        request_columns(
            arrival_ns=[0] * size, first_token_ns=ttft_ms * MS, finish_ns=[SECOND] * size
        )
    )
    expected = sum(range(size - num_slowest + 1, size + 1)) / sum(range(1, size + 1))
    assert group_metrics(log)["slowest_5pct_ttft_share_pct"] == pytest.approx(100 * expected)


def test_groups_without_tenants_or_requests_are_empty_or_null():
    """No tenant named: no object, no index; and valid JSON of an empty log."""
    for log in (toy_log(20, rate_rps=10), run_log(request_columns())):
        summary = json.loads(json.dumps(summarise(log), allow_nan=False))
        assert summary["tenants"] == {}
        assert summary["jain_ttft"] is summary["jain_throughput"] is None
    assert summary["hot"]["mean_ttft_ms"] is summary["slowest_5pct_ttft_share_pct"] is None


def test_groups_of_one_burst_leave_its_demand_undefined():
    """All at once has no rate; the index is of the others."""
    at_ns = [0, 0, 0, SECOND]
    columns = request_columns(
        tenant=list("aabb"), arrival_ns=at_ns, first_token_ns=at_ns, finish_ns=[2 * SECOND] * 4
    )
    log = run_log(columns)
    found = group_metrics(log)
    assert found["jain_throughput"] == 1.0
    # No request waited, so all are equal.
    assert found["jain_ttft"] == 1.0
    assert found["slowest_5pct_ttft_share_pct"] is None


def test_tenant_table_is_printed_for_two_and_not_for_one():
    """A row each, hot and cold, and the line below."""
    text = summary_text(summarise(two_tenants()))
    rows = [line.split() for line in text.splitlines()]
    assert ["a", "3", "0.75", "200.0", "298.0", "30.00", "20.00", "0"] in rows
    assert ["(hot)", "1", "0.25", "200.0", "200.0", "20.00", "50.00", "0"] in rows
    assert "slowest 5 % carry 50.00 % of all TTFT" in text
    alone = run_log(request_columns(tenant=["a"], arrival_ns=[0], finish_ns=[SECOND]))
    assert "tenant" not in summary_text(summarise(alone))


positive = st.floats(1e-9, 1e12)


@given(st.lists(positive, min_size=1, max_size=20))
def test_jain_index_lies_between_one_share_and_one(values):
    """At least 1 / n, at most 1, and 1 if and only if all are equal."""
    index = jain_index(np.array(values))
    assert 1 / len(values) - 1e-12 <= index <= 1
    assert (index == 1) == (len(set(values)) == 1)


@given(st.lists(positive, min_size=2, max_size=20), st.floats(1e-3, 1e3), st.randoms())
def test_jain_index_ignores_units_and_order(values, scale, rng):
    """Milliseconds or seconds, in any order."""
    shuffled = [value * scale for value in values]
    rng.shuffle(shuffled)
    assert jain_index(np.array(shuffled)) == pytest.approx(jain_index(np.array(values)))


@given(st.integers(1, 30), st.integers(1, 30))
def test_jain_index_of_some_with_all_is_their_share(num_served, num_starved):
    """k of n that have everything, alike: k / n."""
    values = np.array([1.0] * num_served + [0.0] * num_starved)
    assert jain_index(values) == pytest.approx(num_served / len(values))


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(1, 9), st.integers(1, 9)),
        min_size=1,
        max_size=30,
    )
)
def test_tenants_and_hot_and_cold_add_up_to_the_run(rows):
    """Requests and rates are sums, means lie between, the longest wait is somebody's."""
    names, arrivals, waits, decodes = zip(*rows, strict=True)
    arrival_ns = np.array(arrivals) * SECOND
    first_ns = arrival_ns + np.array(waits) * MS
    log = run_log(
        request_columns(
            tenant=names,
            arrival_ns=arrival_ns,
            scheduled_ns=first_ns - MS,
            first_token_ns=first_ns,
            finish_ns=first_ns + np.array(decodes) * MS,
            prompt_tokens=[10] * len(rows),
            cached_tokens=decodes,
            output_tokens=decodes,
        )
    )
    summary = summarise(log)
    groups = list(summary["tenants"].values())
    for parts in (groups, [summary["hot"], summary["cold"]]):
        for key in ("completed", "request_throughput", "output_throughput"):
            assert sum(part[key] for part in parts) == pytest.approx(summary[key])
        known = [part for part in parts if part["completed"]]
        assert max(part["max_wait_ms"] for part in known) == summary["max_wait_ms"]
        means = [part["mean_ttft_ms"] for part in known]
        assert min(means) - 1e-9 <= summary["mean_ttft_ms"] <= max(means) + 1e-9
    assert 0 < summary["jain_ttft"] <= 1
    assert 0 < summary["slowest_5pct_ttft_share_pct"] <= 100 + 1e-9
