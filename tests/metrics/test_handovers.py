"""Metrics of prefill and decode servers: the parts of TTFT, what pools do, what is sent."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.metrics.pools import phases, sizes, sizes_of_pool
from sim.metrics.rates import log_end_ns
from sim.metrics.registry import PHASES
from sim.metrics.summary import request_table, summarise
from sim.metrics.timeline import pool_timeline, timeline
from sim.runlog import NOT_YET_NS
from tests.support.disaggregated import DISAGGREGATED, TOGETHER
from tests.support.toy_server import toy_log

ONE = (
    "latency.per_context_token_s=0",
    (
        "workload={kind: synthetic, num_requests: 1, arrivals: {kind: constant, rate_rps: 1},"
        " prompt_tokens: {kind: constant, value: 1000}, output_tokens: {kind: constant, value: 11}}"
    ),
    "pools={p: {role: prefill}, d: {role: decode}}",
    "transfer={bandwidth_gb_s: 10, latency_s: 0.001, bytes_per_token: 100000}",
)


def test_parts_of_ttft_of_one_request_by_hand(pools_log):
    """Prefill 10 ms + 1,000 x 0.05 ms; room is known 1 ms after it is made; 1 ms + 10 ms on the
    link; the decode server has nothing else to do."""
    log = pools_log(ONE)
    parts = phases(log)
    found = {name: round(float(values[0]), 6) for name, values in parts._asdict().items()}
    assert found == {
        "memory_wait_ms": 0,
        "prefill_queue_ms": 1,
        "prefill_ms": 60,
        "transfer_ms": 11,
        "decode_queue_ms": 0,
    }
    summary = summarise(log)
    assert summary["median_ttft_ms"] == pytest.approx(72)
    assert summary["kv_sent_gb"] == pytest.approx(0.1)
    assert (summary["transfers"], summary["failed_transfers"], summary["retried_transfers"]) == (
        1, 0, 0,
    )  # fmt: skip
    duration_s = summary["duration"]
    assert summary["kv_sent_gb_s"] == pytest.approx(0.1 / duration_s)
    assert request_table(log)["sent_tokens"].tolist() == [1000]
    assert request_table(log)["pool"] == ["d"]
    # Of the time, the prefill server computes 60 ms, and decodes nothing.
    prefill, decode = summary["pools"]["p"], summary["pools"]["d"]
    assert prefill["busy_pct"] == pytest.approx(6 / duration_s)
    assert prefill["prefill_throughput"] == pytest.approx(1000 / duration_s)
    assert prefill["mean_running"] == pytest.approx(0.06 / duration_s)
    assert prefill["mean_queue_length"] == pytest.approx(0.001 / duration_s)
    assert prefill["decode_throughput"] == 0 == decode["prefill_throughput"]
    # Ten tokens are decoded; overlap decides an eleventh step before it knows that all are there.
    assert decode["mean_running"] == pytest.approx((duration_s - 0.072) / duration_s)
    assert decode["simulated_steps"] in {10, 11}


@given(
    seed=st.integers(0, 999),
    bandwidth=st.sampled_from(["0.2", "10", "unlimited"]),
    failures=st.sampled_from([0, 0.2]),
    rate=st.sampled_from([5, 60]),
    decode_tokens=st.sampled_from([6_000, 30_000]),
)
def test_parts_of_ttft_add_up_on_random_pools(
    seed, bandwidth, failures, rate, decode_tokens, pools_log
):
    """Each part is at least 0, their sum is the TTFT, and all finished requests have them."""
    log = pools_log(
        [
            f"seed={seed}",
            f"transfer.bandwidth_gb_s={bandwidth}",
            f"transfer.failure_rate={failures}",
            "workload.num_requests=30",
            f"workload.arrivals.rate_rps={rate}",
            f"pools.decode.scheduler.max_total_tokens={decode_tokens}",
        ]
    )
    requests, parts = log.requests, phases(log)
    finished = np.array(requests.status) == "finished"
    assert finished.sum() + log.meta["transfers"]["num_failed"] >= 30 or failures
    ttft_ms = (requests.first_token_ns - requests.arrival_ns) / 1e6
    for part in parts:
        assert (part[finished] >= 0).all()
    assert np.allclose(sum(parts)[finished], ttft_ms[finished])
    decode = next(pool for pool in log.pools if pool.role == "decode")
    for status, number in zip(requests.status, requests.replica.tolist(), strict=True):
        assert decode.has(number) or status != "finished"
    sent = log.handovers.sent_tokens
    assert (sent[finished] == requests.prompt_tokens[finished]).all()
    summary = summarise(log)
    assert summary["pools"]["decode"]["completed"] == summary["completed"]
    of_prefill = sum(summary["pools"][name]["completed"] for name in ("east", "west"))
    assert of_prefill == summary["completed"]
    for pool in summary["pools"].values():
        assert 0 <= pool["busy_pct"] <= 100 + 1e-6
        # A pool that had nothing to do has no step that would tell.
        assert 0 <= (pool["mean_kv_used_pct"] or 0) <= 100


def test_pools_add_up_to_the_run(pools_log):
    """Steps, tokens and sizes over time of the pools are those of the whole run."""
    log = pools_log()
    summary = summarise(log)
    pools = list(summary["pools"].values())
    assert sum(pool["simulated_steps"] for pool in pools) == summary["simulated_steps"]
    whole, parts = timeline(log), [pool_timeline(log, pool) for pool in log.pools]
    for name in ("waiting", "running", "prefill_tokens_per_s", "decode_tokens_per_s"):
        total = sum(getattr(part, name) for part in parts)
        assert np.allclose(total, getattr(whole, name)), name
    # As many leave as come.
    for series in (*sizes(log), *(each for pool in log.pools for each in sizes_of_pool(log, pool))):
        assert series.value.min() >= 0
        assert series.value[-1] == 0


def test_pools_of_whole_servers_have_metrics_and_no_handovers(pools_log):
    """Requests are of the pool that served them; there is nothing to send."""
    log = pools_log(text=TOGETHER)
    summary = summarise(log)
    assert log.handovers is None
    assert "transfers" not in summary
    assert not {f"mean_{phase}_ms" for phase in PHASES} & summary.keys()
    old, new = summary["pools"]["old"], summary["pools"]["new"]
    assert (old["replicas"], new["replicas"]) == (2, 1)
    assert old["completed"] + new["completed"] == summary["completed"] == 80
    numbers = log.requests.replica
    assert set(numbers[: len(numbers)].tolist()) == {0, 1, 2}
    assert old["submitted"] == int((numbers < 2).sum())
    # Utilisation is over the pool's own servers.
    for pool, servers in ((old, [0, 1]), (new, [2])):
        mine = np.isin(log.steps.replica, servers)
        busy_s = log.steps.device_ns[mine].sum() / 1e9
        assert pool["busy_pct"] == pytest.approx(
            100 * busy_s / len(servers) / summary["duration"], rel=0.02
        )


def test_a_run_without_pools_has_nothing_of_them():
    """Neither its log, nor its summary, nor its table of requests."""
    log = toy_log(20, rate_rps=10)
    assert log.handovers is None
    assert log.pools == ()
    assert "pools" not in summarise(log)
    assert not {"pool", "prefill_replica", "transfer_ms"} & request_table(log).keys()


def test_host_memory_and_drafts_of_some_pool_count(pools_log):
    """The log has a host tier if the servers of any pool have."""
    tier = "pools.new.scheduler.host_cache={ratio: 2, load_tokens_per_s: 1000000}"
    tiered = pools_log([tier], TOGETHER)
    assert tiered.has_host_tier
    assert not pools_log(text=TOGETHER).has_host_tier


def test_decode_servers_that_are_too_few_are_a_saturated_run(pools_log):
    """Requests wait for memory there, although prefill servers have nothing to do."""
    slow = [
        "workload.num_requests=120",
        "pools.decode={role: decode, latency: {step_s: 0.2}, scheduler: {max_total_tokens: 6000}}",
    ]
    assert summarise(pools_log(slow))["saturated"]
    assert not summarise(pools_log(["workload.arrivals.rate_rps=3"]))["saturated"]


def test_a_window_leaves_out_requests_and_their_parts(pools_log):
    """The parts of TTFT are those of the window's requests; rates are of the window."""
    log = pools_log(["warmup={requests: 20}", "cooldown={requests: 10}"])
    summary = summarise(log)
    measured = log.measured()
    assert len(measured.handovers.allocated_ns) == summary["submitted"] < 80
    parts = phases(measured)
    assert summary["mean_transfer_ms"] == pytest.approx(float(np.nanmean(parts.transfer_ms)))
    assert log_end_ns(log) > log.window_ns[1]
    assert (log.handovers.allocated_ns != NOT_YET_NS).all()
    assert "pools" in DISAGGREGATED


def test_busy_servers_of_a_pool_that_scales_are_those_that_there_are(pools_log):
    """Of three decode servers, of two ranks each, one is there; so it is as busy as one alone."""
    rule = "rule: {kind: rate, target: 1000000}"
    alone = summarise(pools_log(["pools.decode.replicas=1"]))["pools"]["decode"]
    log = pools_log(
        [
            "pools.decode.replicas=1",
            "pools.decode.autoscale={min_replicas: 1, max_replicas: 3, RULE}".replace("RULE", rule),
        ]
    )
    scaled = summarise(log)["pools"]["decode"]
    assert scaled["busy_pct"] == pytest.approx(alone["busy_pct"])
