"""Who waits: the same measures by tenant, for hot and for cold requests, and how even they are.

docs/how-to/tenants.md has the definitions. numpy only: every run prints them.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from sim.core.request import Status
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.report.latencies import Bools, Float64, finished_mask, request_latencies, status_mask
from sim.report.quantiles import statistics
from sim.report.saturation import queue_times_ns
from sim.runlog import NOT_YET_NS, Int64, RequestColumns, RunLog

Group = dict[str, Any]

_LATENCIES = (
    *((name, "ttft_ms") for name in ("mean", "median", "p99", "max")),
    *((name, "tpot_ms") for name in ("mean", "p99")),
    *((name, "e2e_latency_ms") for name in ("mean", "p99")),
)
_SLOWEST_SHARE = 0.05


class _Rows(NamedTuple):
    """What all groups are made of, one row a request; computed once.

    `latencies_ms` are by name, NaN where undefined; `wait_ns` is until the first batch or the
    log's end. `duration_s` is the whole run's, None if nothing finished.
    """

    columns: RequestColumns
    finished: Bools
    rejected: Bools
    admitted: Bools
    latencies_ms: dict[str, Float64]
    wait_ns: Int64
    duration_s: float | None


def group_metrics(log: RunLog) -> dict[str, Any]:
    """`tenants`, `jain_ttft`, `jain_throughput`, `slowest_5pct_ttft_share_pct`, `hot`, `cold`.

    `tenants` is empty, and Jain's indices are None, where requests have no tenant.
    """
    rows = _rows(log)
    masks = _tenant_masks(log.requests)
    tenants = {name: _group(rows, mask) for name, mask in masks.items()}
    hot, cold = _hot_and_cold(log.requests)
    return {
        "tenants": tenants,
        "jain_ttft": _jain_of([tenant["mean_ttft_ms"] for tenant in tenants.values()]),
        "jain_throughput": _jain_of([_served_share(rows, mask) for mask in masks.values()]),
        "slowest_5pct_ttft_share_pct": _slowest_share_pct(rows),
        "hot": _group(rows, hot),
        "cold": _group(rows, cold),
    }


def group_masks(requests: RequestColumns) -> dict[str, Bools]:
    """True for the requests of each part: `hot`, `cold`, `tenants.NAME`."""
    hot, cold = _hot_and_cold(requests)
    tenants = {f"tenants.{name}": mask for name, mask in _tenant_masks(requests).items()}
    return {"hot": hot, "cold": cold, **tenants}


def jain_index(values: Float64) -> float | None:
    """(sum x)^2 / (n sum x^2): 1 if all are equal, 1 / n if one has everything.

    Args:
        values: at least 0, shape [n]; all 0 counts as all equal. None of them: None.
    """
    if not len(values):
        return None
    largest = float(values.max())
    if largest == 0 or bool((values == largest).all()):
        return 1.0
    # Scaled, so that squares neither overflow nor vanish.
    scaled = values / largest
    index = float(scaled.sum()) ** 2 / (len(values) * float((scaled**2).sum()))
    # Nearly equal is not equal: rounding must not say so.
    return min(index, math.nextafter(1.0, 0.0))


def _rows(log: RunLog) -> _Rows:
    requests = log.requests
    finished = finished_mask(requests)
    duration_s = None
    if finished.any():
        duration_ns = int(requests.finish_ns[finished].max() - requests.arrival_ns.min())
        duration_s = duration_ns / NS_PER_S
    return _Rows(
        columns=requests,
        finished=finished,
        rejected=status_mask(requests, Status.REJECTED),
        admitted=requests.scheduled_ns != NOT_YET_NS,
        latencies_ms=request_latencies(requests)._asdict(),
        wait_ns=queue_times_ns(log),
        duration_s=duration_s,
    )


def _hot_and_cold(requests: RequestColumns) -> tuple[Bools, Bools]:
    admitted = requests.scheduled_ns != NOT_YET_NS
    # At least half of the prompt was cached at first admission.
    hot = 2 * requests.cached_tokens >= requests.prompt_tokens
    return admitted & hot, admitted & ~hot


def _tenant_masks(requests: RequestColumns) -> dict[str, Bools]:
    """Each tenant's requests, by name; empty if nobody has a name."""
    names = sorted(set(requests.tenant))
    if names == [""]:
        return {}
    number = {name: i for i, name in enumerate(names)}
    tenants = np.array([number[name] for name in requests.tenant], dtype=np.int64)
    return {name: tenants == i for name, i in number.items()}


def _group(rows: _Rows, mask: Bools) -> Group:
    """The measures of the requests in `mask`; rates are over the whole run's duration."""
    requests, done, admitted = rows.columns, mask & rows.finished, mask & rows.admitted
    num_done = int(done.sum())
    found = {
        name: statistics(values[done & ~np.isnan(values)])
        for name, values in rows.latencies_ms.items()
    }
    waits_ns = rows.wait_ns[mask & ~rows.rejected]
    return {
        "submitted": int(mask.sum()),
        "completed": num_done,
        "request_throughput": _ratio(num_done, rows.duration_s),
        "output_throughput": _ratio(int(requests.output_tokens[done].sum()), rows.duration_s),
        **{f"{name}_{metric}": found[metric][name] for name, metric in _LATENCIES},
        "cache_hit_rate_pct": _ratio(
            100 * int(requests.cached_tokens[admitted].sum()),
            int(requests.prompt_tokens[admitted].sum()),
        ),
        "max_wait_ms": int(waits_ns.max()) / NS_PER_MS if len(waits_ns) else None,
        "aged": int(requests.aged[mask].sum()),
    }


def _served_share(rows: _Rows, mask: Bools) -> float | None:
    """Requests finished per second over requests sent per second, each in its own window.

    Sending lasts from the first to the last arrival, serving to the last finish. None without
    both, or if all arrived at once.
    """
    done = mask & rows.finished
    arrivals_ns = rows.columns.arrival_ns[mask]
    sending_ns = int(arrivals_ns.max() - arrivals_ns.min())
    if not done.any() or not sending_ns:
        return None
    serving_ns = int(rows.columns.finish_ns[done].max() - arrivals_ns.min())
    return (int(done.sum()) / len(arrivals_ns)) * (sending_ns / serving_ns)


def _jain_of(values: list[float | None]) -> float | None:
    """Jain's index of what is defined."""
    return jain_index(np.array([value for value in values if value is not None], dtype=np.float64))


def _slowest_share_pct(rows: _Rows) -> float | None:
    """Share of all TTFT that the slowest 5 % of finished requests, rounded up, carry."""
    ttft_ms = np.sort(rows.latencies_ms["ttft_ms"][rows.finished])
    num_slowest = math.ceil(_SLOWEST_SHARE * len(ttft_ms))
    slowest_ms = float(ttft_ms[len(ttft_ms) - num_slowest :].sum())
    return _ratio(100 * slowest_ms, float(ttft_ms.sum()))


def _ratio(amount: float, base: float | None) -> float | None:
    return amount / base if base else None
