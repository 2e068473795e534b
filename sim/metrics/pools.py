"""What the servers of each pool do, and where TTFT goes between disaggregated servers."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.engine.server_config import PREFILL
from sim.metrics.groups import Group, group, group_rows
from sim.metrics.latencies import finished_mask, statistics
from sim.metrics.rates import RunRates, duration_s, occupancy_metrics, ratio
from sim.metrics.registry import PHASES, POOL_METRICS
from sim.metrics.series import (
    StepSeries,
    Work,
    added,
    between,
    occupancy,
    tokens_per_s,
    work_around,
)
from sim.runlog import NOT_YET_NS, RequestColumns, RunLog
from sim.runlog.servers import HELD, FleetLog, HandoverColumns, LoggedPool

_GB = 10**9


class Phases(NamedTuple):
    """The parts of each request's TTFT in milliseconds, in the log's order; NaN where undefined.

    `sim.metrics.registry.PHASES` defines them. Their sum is the TTFT.
    """

    memory_wait_ms: Float64
    prefill_queue_ms: Float64
    prefill_ms: Float64
    transfer_ms: Float64
    decode_queue_ms: Float64


def phases(log: RunLog) -> Phases | None:
    """The parts of TTFT; None: no server hands requests over."""
    if log.handovers is None:
        return None
    requests, handovers = log.requests, log.handovers
    arrival, scheduled, first = (
        requests.arrival_ns,
        requests.scheduled_ns,
        requests.first_token_ns,
    )
    allocated, computed = handovers.allocated_ns, handovers.computed_ns
    received = handovers.received_ns
    # SGLang allocates the decode server's memory before the prefill, vLLM after it.
    is_before = allocated <= scheduled
    parts_ns: tuple[Int64, ...] = (
        np.where(is_before, allocated - arrival, np.maximum(allocated - computed, 0)),
        np.where(is_before, scheduled - allocated, scheduled - arrival),
        computed - scheduled,
        received - np.maximum(allocated, computed),
        first - received,
    )
    known = np.all(
        [stamp != NOT_YET_NS for stamp in (scheduled, allocated, computed, received, first)], axis=0
    )
    return Phases(*(np.where(known, part / NS_PER_MS, np.nan) for part in parts_ns))


def handovers_of(
    requests: RequestColumns, parts: Phases, prefill_replica: Int64, sent_tokens: Int64
) -> HandoverColumns:
    """The handovers that have these parts of TTFT: the reverse of `phases`.

    A request that lacks a part has no times.
    """
    known = ~np.isnan(parts.prefill_ms)
    wait_ns, queue_ns, prefill_ns, _, decode_ns = (
        np.rint(np.where(known, part, 0.0) * NS_PER_MS).astype(np.int64) for part in parts
    )
    scheduled_ns = requests.scheduled_ns
    computed_ns = scheduled_ns + prefill_ns
    is_before = requests.arrival_ns + wait_ns + queue_ns == scheduled_ns
    allocated_ns = np.where(is_before, requests.arrival_ns, computed_ns) + wait_ns
    return HandoverColumns(
        prefill_replica,
        np.where(known, allocated_ns, NOT_YET_NS),
        np.where(known, computed_ns, NOT_YET_NS),
        np.where(known, requests.first_token_ns - decode_ns, NOT_YET_NS),
        sent_tokens,
    )


def pools_meta(pools: Mapping[str, Any]) -> dict[str, Any]:
    """The meta data of a log whose summary has these pools."""
    described, first = [], 0
    for name, pool in pools.items():
        ranks = {"ranks": pool["ranks"]} if pool["ranks"] > 1 else {}
        facts = {"name": name, "role": pool["role"], "first": first, "replicas": pool["replicas"]}
        described.append({**facts, **ranks})
        first += pool["replicas"] * pool["ranks"]
    return {"pools": described} if described else {}


def handover_metrics(log: RunLog, whole: RunLog) -> dict[str, Any]:
    """The statistics of each phase, and what was sent; empty if no server hands requests over.

    The phases are those of the requests of `log`, which has only what metrics count; what was sent
    is that of the `whole` run.
    """
    parts = phases(log)
    if parts is None:
        return {}
    finished = finished_mask(log.requests)
    found: dict[str, Any] = {}
    for phase, values in zip(PHASES.values(), parts, strict=True):
        of_phase = statistics(values[finished & ~np.isnan(values)])
        found |= {f"{name}_{phase.name}_ms": of_phase[name] for name in phase.statistics}
    return found | _sent(whole)


def _sent(log: RunLog) -> dict[str, Any]:
    stats: Mapping[str, Any] = log.meta.get("transfers", {})  # type: ignore[assignment]
    num_transfers, num_bytes = stats.get("num_transfers", 0), stats.get("num_bytes", 0)
    seconds = duration_s(log.requests, finished_mask(log.requests))
    return {
        "transfers": num_transfers,
        "failed_transfers": stats.get("num_failed", 0),
        "retried_transfers": stats.get("num_retries", 0),
        "mean_transfer_queue_ms": ratio(stats.get("queue_ns", 0) / NS_PER_MS, num_transfers),
        "kv_sent_gb": num_bytes / _GB,
        "kv_sent_gb_s": ratio(num_bytes / _GB, seconds),
    }


def log_of_pool(log: RunLog, pool: LoggedPool) -> RunLog:
    """The log with the steps of a pool's servers and the requests that they had."""
    mask = pool.requests(log.requests.replica, log.handovers)
    return log.of_requests(mask).of_steps(pool.mask(log.steps.replica))


def sizes(log: RunLog) -> tuple[StepSeries, StepSeries]:
    """How many requests wait, and how many are served, on all servers together.

    Without handovers, they are what the servers log with their steps. If servers are disaggregated,
    one may stand still, and log nothing, while its requests wait for another server. Then requests
    are counted. They wait for their prefill at its server; at their decode server for memory, and
    from their KV's arrival to their first token. They are served during their prefill and from
    their first token on.
    """
    if log.handovers is None:
        steps, requests = log.steps, log.requests
        return occupancy(steps, requests, steps.queue), occupancy(steps, requests, steps.running)
    parts = [sizes_of_pool(log, pool) for pool in log.pools]
    waiting, served = zip(*parts, strict=True)
    return added(waiting), added(served)


def sizes_of_pool(log: RunLog, pool: LoggedPool) -> tuple[StepSeries, StepSeries]:
    """As `sizes`, of one pool."""
    mine = log_of_pool(log, pool)
    requests, handovers = mine.requests, mine.handovers
    if handovers is None:
        return sizes(mine)
    arrival_ns, scheduled_ns = requests.arrival_ns, requests.scheduled_ns
    allocated_ns = handovers.allocated_ns
    is_before = (allocated_ns != NOT_YET_NS) & (allocated_ns <= scheduled_ns)
    if pool.role == PREFILL:
        return (
            between(np.where(is_before, allocated_ns, arrival_ns), scheduled_ns),
            between(scheduled_ns, handovers.computed_ns),
        )
    since_ns = np.where(is_before, arrival_ns, np.minimum(handovers.computed_ns, allocated_ns))
    waits_for_memory = between(since_ns, allocated_ns)
    waits_to_decode = between(handovers.received_ns, requests.first_token_ns)
    return (
        added([waits_for_memory, waits_to_decode]),
        between(requests.first_token_ns, requests.finish_ns),
    )


def pool_metrics(log: RunLog, rates: RunRates) -> dict[str, Any]:
    """`pools`: the metrics of each server pool, by name; empty if all servers are alike.

    `log` is the whole log; rates of requests are of what `rates` has.
    """
    if not log.pools:
        return {}
    work = work_around(log, span_of(log) or ())
    return {"pools": {pool.name: _metrics(log, rates, pool, work) for pool in log.pools}}


def _metrics(log: RunLog, rates: RunRates, pool: LoggedPool, work: Work) -> Group:
    measured = log.measured()
    steps = measured.steps.rows(pool.mask(measured.steps.replica))
    of_pool: Group = {
        **dict.fromkeys(POOL_METRICS),
        **_over_time(log, work.where(pool.mask(work.replica)), pool),
        "simulated_steps": int(steps.num_steps.sum()),
        **occupancy_metrics(steps),
    }
    # The requests of rates are all of the log's, if there is a window.
    source = measured if log.window_ns is None else log
    of_requests = group(
        group_rows(measured, rates),
        pool.requests(measured.requests.replica, measured.handovers),
        pool.requests(source.requests.replica, source.handovers),
    )
    facts = {"role": pool.role, "replicas": pool.num_replicas, "ranks": pool.num_ranks}
    return {**facts, **of_pool, **of_requests}


def _over_time(log: RunLog, work: Work, pool: LoggedPool) -> Group:
    """Means over the window, or else over the time from the first arrival to the last finish."""
    span_ns = span_of(log)
    if span_ns is None:
        return {}
    edges_ns = np.array(span_ns, dtype=np.float64)
    waiting, running = (float(each.means(edges_ns)[0]) for each in sizes_of_pool(log, pool))
    num_computing, computed_per_s, decoded_per_s = (
        float(tokens_per_s(work, amount, edges_ns)[0])
        for amount in (work.device_ns, work.num_prefill_tokens, work.num_decode_tokens)
    )
    num_places = mean_servers(log, pool, *span_ns) * pool.micro_batches
    return {
        "busy_pct": ratio(100 * num_computing / NS_PER_S, num_places),
        "mean_running": running,
        "mean_queue_length": waiting,
        "prefill_throughput": computed_per_s,
        "decode_throughput": decoded_per_s,
    }


def span_of(log: RunLog) -> tuple[int, int] | None:
    """The window, or else from the first arrival to the last finish; None: no time passes."""
    requests = log.measured().requests
    finished = finished_mask(requests)
    span_ns = log.window_ns
    if span_ns is None and finished.any():
        span_ns = int(requests.arrival_ns.min()), int(requests.finish_ns[finished].max())
    return None if span_ns is None or span_ns[0] >= span_ns[1] else span_ns


def mean_servers(log: RunLog, pool: LoggedPool, begin_ns: int, end_ns: int) -> float:
    """The servers of a pool, or their ranks; with autoscale, their mean number."""
    fleet = FleetLog.of(log.meta)
    if fleet is None:
        return pool.num_servers
    held_ns = sum(
        max(min(span.end_ns, end_ns) - max(span.begin_ns, begin_ns), 0)
        for span in fleet.spans(HELD, end_ns)
        if pool.has(span.replica)
    )
    return held_ns / (end_ns - begin_ns) * pool.num_ranks
