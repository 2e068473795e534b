"""A run's summary in the names of SGLang's serving benchmark. numpy only: every run prints it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.core.request import Status
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.report.groups import group_metrics
from sim.report.latencies import (
    Bools,
    RequestLatencies,
    finished_mask,
    request_latencies,
    status_mask,
)
from sim.report.occupancy import occupancy_metrics
from sim.report.quantiles import statistics
from sim.report.saturation import is_saturated, queue_times_ns
from sim.runlog import NOT_YET_NS, RequestColumns, RunLog

Summary = dict[str, Any]

_LATENCY_STATISTICS = ("mean", "median", "std", "p90", "p95", "p99")
_QUEUE_STATISTICS = ("mean", "median", "p90", "p95", "p99", "max")
_MAX_REJECTED_RIDS = 10


@dataclass(frozen=True, slots=True)
class Slo:
    """What a client was promised; None: nothing. A request is good if it meets every part.

    `tpot_ms` does not bind a request of one output token.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_latency_ms: float | None = None

    def limits_ms(self) -> dict[str, float]:
        parts = {"ttft": self.ttft_ms, "tpot": self.tpot_ms, "e2e_latency": self.e2e_latency_ms}
        return {name: limit for name, limit in parts.items() if limit is not None}


def summarise(log: RunLog, slo: Slo | None = None) -> Summary:
    """Everything one run is judged by, as plain JSON values; what is undefined is None.

    * `duration` is in seconds, from the first arrival to the last finish; rates divide by it.
    * Latencies, token totals and rates are those of finished requests; ITL is all token gaps,
      `max_itl_ms` the longest.
    * `cache_hit_rate_pct`: prompt tokens found cached at first admission / prompt tokens, over
      the requests that were admitted, finished or not; `total_cached_tokens` is its numerator.
    * `total_host_cached_tokens` and `host_hit_rate_pct`, only with a host tier, are the part of
      these that was loaded back from host memory; `total_loaded_tokens` is all that was loaded,
      for re-admissions too.
    * `request_rate` is what was asked for: requests submitted a second, from the first arrival to
      the last.
    * `slo_attainment` is the share of all submitted requests that finished within the SLO.
    * `*_queue_time_ms` is the wait for the first batch of finished requests, `max_wait_ms` that
      of anybody but the rejected, still waiting ones up to the log's end. `queue_time` holds the
      same statistics as one object: `mean_ms`, ..., `max_ms`.
    * `saturated`: see `sim.report.saturation`.
    * `mean_decode_rows` and `max_decode_rows` are over the steps that decode, `mean_kv_used_pct`,
      the share of the pool that requests hold, is over all steps.
    * `tenants`, `jain_ttft`, `jain_throughput`, `slowest_5pct_ttft_share_pct`, `hot`, `cold`: see
      docs/how-to/tenants.md.
    * `rejected_rids` names the first ten.
    * `latency_source`, only where step times come from others' measurements, names those.
    * `left_range`, only where steps lie outside of what their times were fitted to, says how many.
    """
    said = ("latency_source", "left_range")
    named = {key: log.meta[key] for key in said if key in log.meta}
    finished = finished_mask(log.requests)
    latencies = request_latencies(log.requests)
    return {
        **_throughput(log.requests, finished, latencies),
        **_latencies(log, finished, latencies),
        **_goodput(log.requests, finished, latencies, slo),
        **_cache(log.requests),
        **(_host_cache(log) if log.has_host_tier else {}),
        **_queue_time(latencies.queue_time_ms[finished]),
        "retractions": int(log.requests.retractions.sum()),
        "preemptions": int(log.requests.preemptions.sum()),
        "aged": int(log.requests.aged.sum()),
        "max_itl_ms": _max_itl_ms(log),
        "max_wait_ms": _max_wait_ms(log),
        "saturated": is_saturated(log),
        **occupancy_metrics(log.steps),
        **group_metrics(log),
        **_counts(log.requests),
        "request_rate": _request_rate(log.requests),
        "simulated_steps": int(log.steps.num_steps.sum()),
        "wall_seconds": log.meta.get("wall_seconds"),
        **named,
    }


def _duration_s(requests: RequestColumns, finished: Bools) -> float | None:
    if not finished.any():
        return None
    return int(requests.finish_ns[finished].max() - requests.arrival_ns.min()) / NS_PER_S


def _throughput(requests: RequestColumns, finished: Bools, latencies: RequestLatencies) -> Summary:
    duration_s = _duration_s(requests, finished)
    completed = int(finished.sum())
    num_input = int(requests.prompt_tokens[finished].sum())
    num_output = int(requests.output_tokens[finished].sum())
    in_system_s = float(latencies.e2e_latency_ms[finished].sum()) * NS_PER_MS / NS_PER_S
    return {
        "duration": duration_s,
        "completed": completed,
        "total_input_tokens": num_input,
        "total_output_tokens": num_output,
        "request_throughput": _ratio(completed, duration_s),
        "input_throughput": _ratio(num_input, duration_s),
        "output_throughput": _ratio(num_output, duration_s),
        "total_throughput": _ratio(num_input + num_output, duration_s),
        "concurrency": _ratio(in_system_s, duration_s),
    }


def _latencies(log: RunLog, finished: Bools, latencies: RequestLatencies) -> Summary:
    gaps = statistics(log.token_gaps.gap_ns / NS_PER_MS, log.token_gaps.count)
    tpot_ms = latencies.tpot_ms[finished]
    return {
        **_named("ttft", latencies.ttft_ms[finished]),
        **_named("tpot", tpot_ms[~np.isnan(tpot_ms)]),
        **{f"{name}_itl_ms": gaps[name] for name in _LATENCY_STATISTICS},
        **_named("e2e_latency", latencies.e2e_latency_ms[finished]),
    }


def _goodput(
    requests: RequestColumns, finished: Bools, latencies: RequestLatencies, slo: Slo | None
) -> Summary:
    limits_ms = {} if slo is None else slo.limits_ms()
    if not limits_ms:
        return {"goodput_slos_ms": {}, "request_goodput": None, "slo_attainment": None}
    good = finished.copy()
    for name, limit_ms in limits_ms.items():
        measured_ms = latencies._asdict()[f"{name}_ms"]
        good &= np.isnan(measured_ms) | (measured_ms <= limit_ms)
    num_good = int(good.sum())
    return {
        "goodput_slos_ms": limits_ms,
        "request_goodput": _ratio(num_good, _duration_s(requests, finished)),
        "slo_attainment": _ratio(num_good, len(good)),
    }


def _cache(requests: RequestColumns) -> Summary:
    admitted = requests.scheduled_ns != NOT_YET_NS
    num_cached = int(requests.cached_tokens[admitted].sum())
    num_prompt = int(requests.prompt_tokens[admitted].sum())
    return {
        "total_cached_tokens": num_cached,
        "cache_hit_rate_pct": _ratio(100 * num_cached, num_prompt),
    }


def _host_cache(log: RunLog) -> Summary:
    requests = log.requests
    admitted = requests.scheduled_ns != NOT_YET_NS
    num_cached = int(requests.host_cached_tokens[admitted].sum())
    num_prompt = int(requests.prompt_tokens[admitted].sum())
    return {
        "total_host_cached_tokens": num_cached,
        "host_hit_rate_pct": _ratio(100 * num_cached, num_prompt),
        "total_loaded_tokens": int(log.steps.num_loaded_tokens.sum()),
    }


def _counts(requests: RequestColumns) -> Summary:
    rejected = np.flatnonzero(status_mask(requests, Status.REJECTED))
    return {
        "submitted": len(requests.rid),
        "rejected": len(rejected),
        "aborted": requests.status.count(Status.ABORTED.value),
        "unfinished": requests.status.count(Status.WAITING.value)
        + requests.status.count(Status.RUNNING.value),
        "rejected_rids": [requests.rid[row] for row in rejected[:_MAX_REJECTED_RIDS]],
    }


def _max_itl_ms(log: RunLog) -> float | None:
    gap_ns = log.token_gaps.gap_ns[log.token_gaps.count > 0]
    return int(gap_ns.max()) / NS_PER_MS if len(gap_ns) else None


def _request_rate(requests: RequestColumns) -> float | None:
    """Arrivals after the first one, over the time they took; None if all came at once."""
    if not len(requests.rid):
        return None
    window_ns = int(requests.arrival_ns.max() - requests.arrival_ns.min())
    return _ratio(len(requests.rid) - 1, window_ns / NS_PER_S)


def _max_wait_ms(log: RunLog) -> float | None:
    waits_ns = queue_times_ns(log)[~status_mask(log.requests, Status.REJECTED)]
    return int(waits_ns.max()) / NS_PER_MS if len(waits_ns) else None


def _queue_time(values_ms: np.ndarray) -> Summary:
    flat = _named("queue_time", values_ms, _QUEUE_STATISTICS)
    nested = {f"{name}_ms": flat[f"{name}_queue_time_ms"] for name in _QUEUE_STATISTICS}
    return {**flat, "queue_time": nested}


def _named(
    metric: str, values_ms: np.ndarray, names: tuple[str, ...] = _LATENCY_STATISTICS
) -> Summary:
    found = statistics(values_ms)
    return {f"{name}_{metric}_ms": found[name] for name in names}


def _ratio(amount: float, base: float | None) -> float | None:
    return amount / base if base else None
