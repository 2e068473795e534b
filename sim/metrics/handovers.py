"""Where TTFT goes if prefill and decode servers are apart, and what is sent between them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.units import NS_PER_MS
from sim.metrics.latencies import finished_mask
from sim.metrics.quantiles import statistics
from sim.metrics.rates import duration_s, ratio
from sim.metrics.registry import PHASES
from sim.runlog import NOT_YET_NS, RequestColumns, RunLog
from sim.runlog.handovers import HandoverColumns

_GB = 10**9


class Phases(NamedTuple):
    """The parts of each request's TTFT in milliseconds, in the log's order; NaN where undefined.

    `sim.metrics.registry.PHASES` defines them. Their sum is the TTFT.
    """

    room_wait_ms: Float64
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
    room, computed, received = handovers.room_ns, handovers.computed_ns, handovers.received_ns
    # SGLang makes room before the prefill, vLLM after it.
    is_before = room <= scheduled
    parts_ns: tuple[Int64, ...] = (
        np.where(is_before, room - arrival, np.maximum(room - computed, 0)),
        np.where(is_before, scheduled - room, scheduled - arrival),
        computed - scheduled,
        received - np.maximum(room, computed),
        first - received,
    )
    known = np.all(
        [stamp != NOT_YET_NS for stamp in (scheduled, room, computed, received, first)], axis=0
    )
    return Phases(*(np.where(known, part / NS_PER_MS, np.nan) for part in parts_ns))


def handovers_of(
    requests: RequestColumns, parts: Phases, prefill_replica: Int64, sent_tokens: Int64
) -> HandoverColumns:
    """The handovers that have these parts of TTFT: the reverse of `phases`.

    A request that lacks a part has no times.
    """
    known = ~np.isnan(parts.prefill_ms)
    room_ns, queue_ns, prefill_ns, _, decode_ns = (
        np.rint(np.where(known, part, 0.0) * NS_PER_MS).astype(np.int64) for part in parts
    )
    scheduled_ns = requests.scheduled_ns
    computed_ns = scheduled_ns + prefill_ns
    is_before = requests.arrival_ns + room_ns + queue_ns == scheduled_ns
    has_room_ns = np.where(is_before, requests.arrival_ns, computed_ns) + room_ns
    return HandoverColumns(
        prefill_replica,
        np.where(known, has_room_ns, NOT_YET_NS),
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

    Args:
        log: without what no metric counts: the phases are those of its requests.
        whole: the whole log: what was sent is that of the whole run.
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
