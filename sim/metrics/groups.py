"""Metrics of each tenant, of hot and cold requests, and of how evenly tenants are served.

docs/how-to/tenants.md has the definitions.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from sim.core.arrays import Bools, Float64, Int64
from sim.core.request import Status
from sim.metrics.latencies import finished_mask, request_latencies, statistics, status_mask
from sim.metrics.rates import (
    RunRates,
    admitted_mask,
    hit_rate_pct,
    max_wait_ms,
    queue_times_ns,
    ratio,
    served,
)
from sim.metrics.registry import E2E_LATENCY, GROUP_METRICS, TPOT, TTFT
from sim.runlog import RequestColumns, RunLog

Group = dict[str, Any]

_SLOWEST_SHARE = 0.05
_TENANT = "tenants."


class GroupRows(NamedTuple):
    """Columns that every group's metrics are computed from, with one row for each request.

    Attributes:
        latencies_ms: by name (`ttft_ms`); NaN where undefined.
        served: what rates are computed from. If rates are those of a window, its requests are
            others than the rows.
    """

    columns: RequestColumns
    finished: Bools
    rejected: Bools
    admitted: Bools
    latencies_ms: dict[str, Float64]
    wait_ns: Int64
    served: RunRates


def group_metrics(log: RunLog, rates: RunRates | None = None) -> dict[str, Any]:
    """`tenants`, `jain_ttft`, `jain_throughput`, `slowest_5pct_ttft_share_pct`, `hot`, `cold`.

    If no request has a tenant, `tenants` is empty and Jain's indices are None.
    """
    log, rates = log.measured(), rates or served(log)
    rows = group_rows(log, rates)
    of_rates = group_masks(rates.requests)
    masks = _tenant_masks(log.requests)
    tenants = {
        name: group(rows, mask, of_rates[f"{_TENANT}{name}"]) for name, mask in masks.items()
    }
    hot, cold = _hot_and_cold(log.requests)
    return {
        "tenants": tenants,
        "jain_ttft": _jain_of([tenant["mean_ttft_ms"] for tenant in tenants.values()]),
        "jain_throughput": _jain_of([_served_share(rows, mask) for mask in masks.values()]),
        "slowest_5pct_ttft_share_pct": _slowest_share_pct(rows),
        "hot": group(rows, hot, of_rates["hot"]),
        "cold": group(rows, cold, of_rates["cold"]),
    }


def group_masks(requests: RequestColumns) -> dict[str, Bools]:
    """For each group (`hot`, `cold`, `tenants.NAME`) a mask of its requests, [num_requests]."""
    hot, cold = _hot_and_cold(requests)
    tenants = {f"{_TENANT}{name}": mask for name, mask in _tenant_masks(requests).items()}
    return {"hot": hot, "cold": cold, **tenants}


def jain_index(values: Float64) -> float | None:
    """Jain's fairness index, (sum x)^2 / (n sum x^2), of values of at least 0; None without values.

    It is 1 if all values are equal (also if all are 0), and 1 / n if only one is above 0.
    """
    if not len(values):
        return None
    largest = float(values.max())
    if largest == 0 or bool((values == largest).all()):
        return 1.0
    # Values are scaled, so that their squares neither overflow nor underflow.
    scaled = values / largest
    index = float(scaled.sum()) ** 2 / (len(values) * float((scaled**2).sum()))
    # Values that differ must not get an index of 1 by rounding.
    return min(index, math.nextafter(1.0, 0.0))


def group_rows(log: RunLog, rates: RunRates) -> GroupRows:
    """The columns of a log's requests, for `group`."""
    requests = log.requests
    return GroupRows(
        columns=requests,
        finished=finished_mask(requests),
        rejected=status_mask(requests, Status.REJECTED),
        admitted=admitted_mask(requests),
        latencies_ms=request_latencies(requests)._asdict(),
        wait_ns=queue_times_ns(log),
        served=rates,
    )


def _hot_and_cold(requests: RequestColumns) -> tuple[Bools, Bools]:
    admitted = admitted_mask(requests)
    # At least half of the prompt was cached at first admission.
    hot = 2 * requests.cached_tokens >= requests.prompt_tokens
    return admitted & hot, admitted & ~hot


def _tenant_masks(requests: RequestColumns) -> dict[str, Bools]:
    """A mask of each tenant's requests, by name; empty if no request has a tenant."""
    names = sorted(set(requests.tenant))
    if names == [""]:
        return {}
    number = {name: i for i, name in enumerate(names)}
    tenants = np.array([number[name] for name in requests.tenant], dtype=np.int64)
    return {name: tenants == i for name, i in number.items()}


def group(rows: GroupRows, mask: Bools, of_rates: Bools) -> Group:
    """The metrics of the requests in `mask`. Rates are of those in `of_rates`."""
    requests, done = rows.columns, mask & rows.finished
    rates = rows.served
    found: Group = {
        "submitted": int(mask.sum()),
        "completed": int(done.sum()),
        "request_throughput": ratio(int((of_rates & rates.finished).sum()), rates.duration_s),
        "output_throughput": ratio(rates.output_tokens[of_rates].sum().item(), rates.duration_s),
        "cache_hit_rate_pct": hit_rate_pct(requests, mask & rows.admitted),
        "max_wait_ms": max_wait_ms(rows.wait_ns, mask & ~rows.rejected),
        "aged": int(requests.aged[mask].sum()),
    }
    for latency in (TTFT, TPOT, E2E_LATENCY):
        values = rows.latencies_ms[f"{latency.name}_ms"]
        of_latency = statistics(values[done & ~np.isnan(values)])
        found |= {f"{name}_{latency.name}_ms": value for name, value in of_latency.items()}
    return {name: found[name] for name in GROUP_METRICS}


def _served_share(rows: GroupRows, mask: Bools) -> float | None:
    """(Requests finished per second of serving) / (requests sent per second of sending).

    Sending lasts from the first arrival to the last, serving from the first arrival to the last
    finish. None if no request finished, or if all arrived at once.
    """
    done = mask & rows.finished
    arrivals_ns = rows.columns.arrival_ns[mask]
    sending_ns = int(arrivals_ns.max() - arrivals_ns.min())
    if not done.any() or not sending_ns:
        return None
    serving_ns = int(rows.columns.finish_ns[done].max() - arrivals_ns.min())
    return (int(done.sum()) / len(arrivals_ns)) * (sending_ns / serving_ns)


def _jain_of(values: list[float | None]) -> float | None:
    """Jain's index of the values that are defined."""
    return jain_index(np.array([value for value in values if value is not None], dtype=np.float64))


def _slowest_share_pct(rows: GroupRows) -> float | None:
    """Share of the sum of all TTFTs that the slowest 5 % of finished requests (rounded up) have."""
    ttft_ms = np.sort(rows.latencies_ms["ttft_ms"][rows.finished])
    num_slowest = math.ceil(_SLOWEST_SHARE * len(ttft_ms))
    slowest_ms = float(ttft_ms[len(ttft_ms) - num_slowest :].sum())
    return ratio(100 * slowest_ms, float(ttft_ms.sum()))
