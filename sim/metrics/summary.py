"""A run's summary, and its table of requests. Metrics are named as in SGLang's benchmark."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sim.core.arrays import Bools, Float64, Int64, Narrow
from sim.core.request import Status
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.metrics.client_figures import client_figures
from sim.metrics.groups import group_masks, group_metrics
from sim.metrics.latencies import (
    RequestLatencies,
    Slo,
    finished_mask,
    quantiles,
    request_latencies,
    statistics,
    status_mask,
)
from sim.metrics.pools import handover_metrics, phases, pool_metrics
from sim.metrics.power import power_metrics
from sim.metrics.rates import (
    RunRates,
    admitted_mask,
    hit_rate_pct,
    is_saturated,
    max_wait_ms,
    occupancy_metrics,
    queue_times_ns,
    ratio,
    request_rate,
    served,
)
from sim.metrics.registry import E2E_LATENCY, ITL, QUEUE_TIME, TPOT, TTFT, Latency
from sim.metrics.timeline import fleet_metrics
from sim.runlog import RequestColumns, RunLog

Summary = dict[str, Any]

_MAX_REJECTED_RIDS = 10
_SUMS = ("retractions", "preemptions", "aged")
_REMARKS = ("latency_source", "left_range", "traffic_notes")


def summarise(log: RunLog, slo: Slo | None = None) -> Summary:
    """The metrics of one run, as plain JSON values. An undefined metric is None.

    A warm-up is left out of all of it. `sim.metrics.registry` defines the metrics. A summary also
    has:

    * `window`: `begin_s` and `end_s` of the part that the metrics are about, if it is not all.
    * `goodput_slos_ms`: the SLO's limits by latency; `slo_percentile`: which percentile of each
      is held against its limit, if there are any.
    * `queue_time`: the statistics of the queue time again, as one object: `mean_ms`, ...
    * `tenants`, `hot`, `cold`: the metrics of these requests alone, see docs/how-to/tenants.md.
    * `pools`: with server pools, of each one its role, its number of replicas and of their ranks,
      the metrics of its servers (`sim.metrics.pools`), and those of the requests that they had.
    * `rejected_rids`: the ids of the first ten rejected requests.
    * `wall_seconds`: how long the simulation took; not in files.
    * `latency_source`: who measured the step times, if they are published measurements.
    * `traffic_notes`: what the reader of a trace left out or estimated, if anything.
    * `left_range`: how many steps are outside the range that step times were fitted to, if any are.
    * `client_figures`: what a benchmark's client prints, if one sent the requests.
    """
    measured, rates = log.measured(), served(log)
    requests = measured.requests
    finished, latencies = finished_mask(requests), request_latencies(requests)
    rejected = status_mask(requests, Status.REJECTED)
    limits_ms = {} if slo is None else slo.limits_ms()
    good = _within(limits_ms, finished, latencies) if limits_ms else None
    return {
        **_throughput(requests, finished, rates),
        **_latencies(measured, finished, latencies),
        **_goodput(good, rates, slo),
        **_cache(measured),
        **_drafts(measured),
        **_queue_time(latencies.queue_time_ms[finished]),
        **{name: int(getattr(requests, name).sum()) for name in _SUMS},
        "max_itl_ms": _max_itl_ms(measured),
        "max_wait_ms": max_wait_ms(queue_times_ns(measured), ~rejected),
        "saturated": is_saturated(log),
        **occupancy_metrics(measured.steps),
        **group_metrics(measured, rates),
        **_counts(requests),
        "request_rate": request_rate(requests, log.window_ns),
        **fleet_metrics(log, requests.arrival_ns, good, slo),
        **power_metrics(log, rates),
        "simulated_steps": int(measured.steps.num_steps.sum()),
        **handover_metrics(measured, log),
        **pool_metrics(log, rates),
        "wall_seconds": log.meta.get("wall_seconds"),
        **_window(log),
        **_remarks(measured, good),
    }


def _remarks(log: RunLog, good: Bools | None) -> Summary:
    remarks = {key: log.meta[key] for key in _REMARKS if key in log.meta}
    if "client" in log.meta:
        num_good = int(good.sum()) if good is not None and len(good) else None
        remarks["client_figures"] = client_figures(log, num_good)
    return remarks


def _window(log: RunLog) -> Summary:
    if log.window_ns is None:
        return {}
    begin_s, end_s = (time_ns / NS_PER_S for time_ns in log.window_ns)
    return {"window": {"begin_s": begin_s, "end_s": end_s}}


def _throughput(requests: RequestColumns, finished: Bools, rates: RunRates) -> Summary:
    seconds = rates.duration_s
    num_input, num_output = rates.input_tokens.sum().item(), rates.output_tokens.sum().item()
    return {
        "duration": seconds,
        "completed": int(finished.sum()),
        "total_input_tokens": int(requests.prompt_tokens[finished].sum()),
        "total_output_tokens": int(requests.output_tokens[finished].sum()),
        "request_throughput": ratio(int(rates.finished.sum()), seconds),
        "input_throughput": ratio(num_input, seconds),
        "output_throughput": ratio(num_output, seconds),
        "total_throughput": ratio(num_input + num_output, seconds),
        "concurrency": ratio(rates.in_system_s, seconds),
    }


def _latencies(log: RunLog, finished: Bools, latencies: RequestLatencies) -> Summary:
    tpot_ms = latencies.tpot_ms[finished]
    return {
        **_statistics(TTFT, latencies.ttft_ms[finished]),
        **_statistics(TPOT, tpot_ms[~np.isnan(tpot_ms)]),
        **_statistics(ITL, *log.token_gaps.compact(), unit=NS_PER_MS),
        **_statistics(E2E_LATENCY, latencies.e2e_latency_ms[finished]),
    }


def _statistics(
    latency: Latency, values: Float64 | Narrow, counts: Narrow | None = None, unit: int = 1
) -> Summary:
    found = statistics(values, counts, unit)
    return {f"{name}_{latency.name}_ms": found[name] for name in latency.statistics}


def _goodput(good: Bools | None, rates: RunRates, slo: Slo | None) -> Summary:
    if slo is None or good is None:
        return {"goodput_slos_ms": {}, "request_goodput": None, "slo_attainment": None}
    limits_ms = slo.limits_ms()
    served_well = _within(limits_ms, rates.finished, request_latencies(rates.requests))
    return {
        "goodput_slos_ms": limits_ms,
        "slo_percentile": slo.percentile,
        "request_goodput": ratio(int(served_well.sum()), rates.duration_s),
        "slo_attainment": ratio(int(good.sum()), len(good)),
    }


def attainment_if(log: RunLog, slo: Slo, ttft_factor: float, decode_factor: float) -> float | None:
    """The SLO attainment if each TTFT, and each time after it, were multiplied by these factors."""
    requests = log.measured().requests
    latencies = request_latencies(requests)
    after_ms = latencies.e2e_latency_ms - latencies.ttft_ms
    scaled = latencies._replace(
        ttft_ms=ttft_factor * latencies.ttft_ms,
        tpot_ms=decode_factor * latencies.tpot_ms,
        e2e_latency_ms=ttft_factor * latencies.ttft_ms + decode_factor * after_ms,
    )
    good = _within(slo.limits_ms(), finished_mask(requests), scaled)
    return ratio(int(good.sum()), len(good))


def _within(limits_ms: Mapping[str, float], finished: Bools, latencies: RequestLatencies) -> Bools:
    """The finished requests that meet every limit."""
    good = finished.copy()
    for name, limit_ms in limits_ms.items():
        measured_ms = latencies._asdict()[f"{name}_ms"]
        # A request of one output token has no TPOT, and so meets its limit.
        good &= np.isnan(measured_ms) | (measured_ms <= limit_ms)
    return good


def _cache(log: RunLog) -> Summary:
    requests, admitted = log.requests, admitted_mask(log.requests)
    found: Summary = {
        "total_cached_tokens": int(requests.cached_tokens[admitted].sum()),
        "cache_hit_rate_pct": hit_rate_pct(requests, admitted),
    }
    if log.has_host_tier:
        num_cached = int(requests.host_cached_tokens[admitted].sum())
        num_prompt = int(requests.prompt_tokens[admitted].sum())
        found |= {
            "total_host_cached_tokens": num_cached,
            "host_hit_rate_pct": ratio(100 * num_cached, num_prompt),
            "total_loaded_tokens": int(log.steps.num_loaded_tokens.sum()),
        }
    if log.predicted_tokens is not None:
        predicted, cached = log.predicted_tokens[admitted], requests.cached_tokens[admitted]
        num_prompt = int(requests.prompt_tokens[admitted].sum())
        for name, tokens in (
            ("predicted_hit_rate_pct", predicted),
            ("false_hit_rate_pct", np.maximum(predicted - cached, 0)),
            ("unforeseen_hit_rate_pct", np.maximum(cached - predicted, 0)),
        ):
            found[name] = ratio(100 * int(tokens.sum()), num_prompt)
    return found


def _drafts(log: RunLog) -> Summary:
    if not log.has_drafts:
        return {}
    requests = log.requests
    num_accepted, num_steps = int(requests.accepted_tokens.sum()), int(requests.verify_steps.sum())
    return {
        "drafted_tokens": int(requests.drafted_tokens.sum()),
        "accepted_tokens": num_accepted,
        "mean_acceptance_length": ratio(num_accepted + num_steps, num_steps),
    }


def _counts(requests: RequestColumns) -> Summary:
    rejected = np.flatnonzero(status_mask(requests, Status.REJECTED))
    return {
        "submitted": len(requests.rid),
        "rejected": len(rejected),
        "aborted": requests.status.count(Status.ABORTED.value),
        "unfinished": sum(
            requests.status.count(status.value) for status in (Status.WAITING, Status.RUNNING)
        ),
        "rejected_rids": [requests.rid[row] for row in rejected[:_MAX_REJECTED_RIDS]],
    }


def _max_itl_ms(log: RunLog) -> float | None:
    gap_ns, count = log.token_gaps.compact()
    longest_ns = int(gap_ns.max(where=count > 0, initial=-1))
    return None if longest_ns < 0 else longest_ns / NS_PER_MS


def _queue_time(values_ms: Float64) -> Summary:
    flat = _statistics(QUEUE_TIME, values_ms)
    nested = {name.replace(f"_{QUEUE_TIME.name}", ""): value for name, value in flat.items()}
    return {**flat, QUEUE_TIME.name: nested}


PERCENTS: tuple[float, ...] = (*range(100), 99.5, 99.9, 100)
# Milliseconds are rounded to microseconds.
_DIGITS = 3


def add_quantiles(summary: dict[str, Any], log: RunLog) -> dict[str, Any]:
    """A run's summary with the quantiles of its latencies at `PERCENTS`, in milliseconds.

    A sweep stores them for each point, to draw distributions later.

    Added at the top: `ttft_quantiles_ms`, `tpot_quantiles_ms` and `e2e_latency_quantiles_ms` of
    finished requests, and `itl_quantiles_ms` of token gaps. Added to `hot`, `cold` and each of
    `tenants`: `ttft_quantiles_ms`. A list is empty if there is no sample.
    """
    log = log.measured()
    finished = finished_mask(log.requests)
    latencies = request_latencies(log.requests)._asdict()
    of_all = {
        name.replace("_ms", "_quantiles_ms"): _quantiles(latencies[name][finished])
        for name in ("ttft_ms", "tpot_ms", "e2e_latency_ms")
    }
    itl = _quantiles(log.token_gaps.gap_ns / NS_PER_MS, log.token_gaps.count)

    def with_ttft(group: dict[str, Any], mask: Bools) -> dict[str, Any]:
        return {**group, "ttft_quantiles_ms": _quantiles(latencies["ttft_ms"][finished & mask])}

    masks = group_masks(log.requests)
    groups = {name: with_ttft(summary[name], masks[name]) for name in ("hot", "cold")}
    tenants = {
        name: with_ttft(group, masks[f"tenants.{name}"])
        for name, group in summary["tenants"].items()
    }
    return {**summary, **of_all, "itl_quantiles_ms": itl, **groups, "tenants": tenants}


def _quantiles(values: Float64, counts: Int64 | None = None) -> list[float]:
    return [round(value, _DIGITS) for value in quantiles(values, PERCENTS, counts)]


RequestTable = dict[str, list[str] | Int64 | Float64]


def request_table(log: RunLog) -> RequestTable:
    """The table of requests, by column, in the order of the columns in files and data frames.

    It has no warm-up requests. `host_cached_tokens` is among them if the run had a host tier, and
    `predicted_tokens` if its router predicts what is cached; with server pools, `pool`, that of the
    replica; and if prefill and decode servers are disaggregated, the parts of TTFT
    (`sim.metrics.registry.PHASES`), `sent_tokens` and `prefill_replica`.
    """
    log = log.measured()
    requests = log.requests
    latencies = request_latencies(requests)
    host = {"host_cached_tokens": requests.host_cached_tokens} if log.has_host_tier else {}
    if log.predicted_tokens is not None:
        host["predicted_tokens"] = log.predicted_tokens
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
