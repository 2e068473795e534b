"""The table of a run's requests: the columns of files and data frames."""

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.units import NS_PER_S
from sim.metrics.latencies import request_latencies
from sim.metrics.pools import phases
from sim.runlog import RunLog

RequestTable = dict[str, list[str] | Int64 | Float64]


def request_table(log: RunLog) -> RequestTable:
    """The table of requests, by column, in the order of the columns in files and data frames.

    It has no warm-up requests. `host_cached_tokens` is among them if the run had a host tier; with
    server pools, `pool`, that of the replica; and if prefill and decode servers are disaggregated,
    the parts of TTFT (`sim.metrics.registry.PHASES`), `sent_tokens` and `prefill_replica`.
    """
    log = log.measured()
    requests = log.requests
    latencies = request_latencies(requests)
    host = {"host_cached_tokens": requests.host_cached_tokens} if log.has_host_tier else {}
    return {
        "rid": requests.rid,
        "arrival_s": requests.arrival_ns / NS_PER_S,
        "ttft_ms": latencies.ttft_ms,
        "tpot_ms": latencies.tpot_ms,
        "e2e_latency_ms": latencies.e2e_latency_ms,
        "queue_time_ms": latencies.queue_time_ms,
        **_handovers(log),
        "prompt_tokens": requests.prompt_tokens,
        "cached_tokens": requests.cached_tokens,
        **host,
        "output_tokens": requests.output_tokens,
        "retractions": requests.retractions,
        "preemptions": requests.preemptions,
        "aged": requests.aged,
        **_places(log),
        "tenant": requests.tenant,
        "status": requests.status,
    }


def _handovers(log: RunLog) -> RequestTable:
    parts, handovers = phases(log), log.handovers
    if parts is None or handovers is None:
        return {}
    return {**parts._asdict(), "sent_tokens": handovers.sent_tokens}


def _places(log: RunLog) -> RequestTable:
    """The replica of each request; and its rank, if replicas have several, or its pool."""
    replica, rank = np.divmod(log.requests.replica, log.num_ranks)
    places: RequestTable = {"replica": replica}
    if log.num_ranks > 1:
        places["rank"] = rank
    if log.handovers is not None:
        places = {"prefill_replica": log.handovers.prefill_replica, **places}
    if log.pools:
        names = {number: pool.name for pool in log.pools for number in range(pool.first, pool.end)}
        places["pool"] = [names.get(number, "") for number in log.requests.replica.tolist()]
    return places
