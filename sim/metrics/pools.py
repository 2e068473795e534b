"""What the servers of each pool do: the log of a pool, its sizes over time, and its metrics."""

from dataclasses import replace
from typing import Any

import numpy as np

from sim.core.units import NS_PER_S
from sim.engine.partner import PREFILL
from sim.metrics.groups import Group, metrics_of
from sim.metrics.latencies import finished_mask
from sim.metrics.rates import occupancy_metrics, ratio
from sim.metrics.registry import POOL_METRICS
from sim.metrics.series import StepSeries, added, between, occupancy, tokens_per_s
from sim.metrics.served import Served
from sim.runlog import NOT_YET_NS, RunLog, StepColumns
from sim.runlog.fleet import HELD, FleetLog
from sim.runlog.handovers import LoggedPool


def log_of_pool(log: RunLog, pool: LoggedPool) -> RunLog:
    """The log with the steps of a pool's servers and the requests that they had."""
    mask = pool.requests(log.requests.replica, log.handovers)
    return replace(log.of_requests(mask), steps=log.steps.rows(pool.mask(log.steps.replica)))


def sizes(log: RunLog) -> tuple[StepSeries, StepSeries]:
    """How many requests wait, and how many are served, on all servers together.

    Without handovers, they are what the servers log with their steps. If prefill and decode servers
    are apart, a server may stand still while its requests wait for the other side, and logs
    nothing. Then requests are counted. They wait for their prefill at its server; for room, and
    from their KV's arrival to their first token, at their decode server. They are served during
    their prefill and from their first token on.
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
    arrival_ns, scheduled_ns, room_ns = (
        requests.arrival_ns,
        requests.scheduled_ns,
        handovers.room_ns,
    )
    is_before = (room_ns != NOT_YET_NS) & (room_ns <= scheduled_ns)
    if pool.role == PREFILL:
        return (
            between(np.where(is_before, room_ns, arrival_ns), scheduled_ns),
            between(scheduled_ns, handovers.computed_ns),
        )
    waits_for_room = between(
        np.where(is_before, arrival_ns, np.minimum(handovers.computed_ns, room_ns)), room_ns
    )
    waits_to_decode = between(handovers.received_ns, requests.first_token_ns)
    return (
        added([waits_for_room, waits_to_decode]),
        between(requests.first_token_ns, requests.finish_ns),
    )


def pool_metrics(log: RunLog, rates: Served) -> dict[str, Any]:
    """`pools`: the metrics of each server pool, by name; empty if all servers are alike.

    Args:
        log: the whole log.
        rates: what the rates of requests are of.
    """
    found = {pool.name: _metrics(log, rates, pool) for pool in log.pools}
    return {"pools": found} if found else {}


def _metrics(log: RunLog, rates: Served, pool: LoggedPool) -> Group:
    measured = log.measured()
    steps = measured.steps.rows(pool.mask(measured.steps.replica))
    of_pool: Group = {
        **dict.fromkeys(POOL_METRICS),
        **_over_time(log, steps, pool),
        "simulated_steps": int(steps.num_steps.sum()),
        **occupancy_metrics(steps),
    }
    # The requests of rates are all of the log's, if there is a window.
    source = measured if log.window_ns is None else log
    of_requests = metrics_of(
        measured,
        rates,
        pool.requests(measured.requests.replica, measured.handovers),
        pool.requests(source.requests.replica, source.handovers),
    )
    facts = {"role": pool.role, "replicas": pool.num_replicas, "ranks": pool.num_ranks}
    return {**facts, **of_pool, **of_requests}


def _over_time(log: RunLog, steps: StepColumns, pool: LoggedPool) -> Group:
    """Means over the window, or else over the time from the first arrival to the last finish."""
    requests = log.measured().requests
    finished = finished_mask(requests)
    span_ns = log.window_ns
    if span_ns is None and finished.any():
        span_ns = int(requests.arrival_ns.min()), int(requests.finish_ns[finished].max())
    if span_ns is None or span_ns[0] >= span_ns[1]:
        return {}
    edges_ns = np.array(span_ns, dtype=np.float64)
    waiting, running = (float(each.means(edges_ns)[0]) for each in sizes_of_pool(log, pool))
    decoded = steps.num_decode_rows * steps.num_steps
    num_computing, computed_per_s, decoded_per_s = (
        float(tokens_per_s(steps, amount, edges_ns)[0])
        for amount in (steps.device_ns, steps.num_prefill_tokens, decoded)
    )
    num_places = _mean_servers(log, pool, *span_ns) * pool.micro_batches
    return {
        "busy_pct": ratio(100 * num_computing / NS_PER_S, num_places),
        "mean_running": running,
        "mean_queue_length": waiting,
        "prefill_throughput": computed_per_s,
        "decode_throughput": decoded_per_s,
    }


def _mean_servers(log: RunLog, pool: LoggedPool, begin_ns: int, end_ns: int) -> float:
    """The servers of a pool, or their ranks; with autoscale, their mean number."""
    fleet = FleetLog.of(log)
    if fleet is None:
        return pool.num_servers
    held_ns = sum(
        max(min(span.end_ns, end_ns) - max(span.begin_ns, begin_ns), 0)
        for span in fleet.spans(HELD, end_ns)
        if pool.has(span.replica)
    )
    return held_ns / (end_ns - begin_ns) * pool.num_ranks
