"""A run as the page draws it: four curves, and the figures of a table."""

import numpy as np

from sim.core.arrays import Float64
from sim.core.units import NS_PER_S
from sim.metrics.latencies import finished_mask, request_latencies
from sim.metrics.rates import hit_rate_over_time
from sim.metrics.registry import metric
from sim.metrics.summary import Summary
from sim.metrics.timeline import timeline
from sim.runlog import RunLog
from sim.tables.text import number

_PERCENTS = np.linspace(0, 100, 201)
# The metrics of the table; those of an SLO only where the scenario has one.
_FIGURES = (
    "mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_itl_ms",
    "cache_hit_rate_pct", "request_throughput", "output_throughput", "mean_kv_used_pct",
    "max_wait_ms",
)  # fmt: skip
_SLO_FIGURES = ("request_goodput", "slo_attainment")


def curves(log: RunLog) -> dict[str, dict[str, list[float]]]:
    """Points of each curve.

    `ttft`: percent of the finished requests up to each time to first token, in ms. The others are
    over time in s: `hits`, the percent of newly admitted prompt tokens that was cached; `queue`,
    the waiting requests of all replicas; `kv`, the percent of the KV pools in use.
    """
    requests = log.measured().requests
    ttft_ms = request_latencies(requests).ttft_ms[finished_mask(requests)]
    quantiles = np.percentile(ttft_ms, _PERCENTS) if len(ttft_ms) else np.zeros(0)
    middles_ns, hits_pct = hit_rate_over_time(log)
    over_time = timeline(log)
    pool = over_time.used_tokens + over_time.evictable_tokens + over_time.free_tokens
    used_pct = 100 * over_time.used_tokens / np.maximum(pool, 1)
    return {
        "ttft": _points(quantiles, _PERCENTS[: len(quantiles)]),
        "hits": _points(middles_ns / NS_PER_S, hits_pct),
        "queue": _points(over_time.t_s, over_time.waiting),
        "kv": _points(over_time.t_s, used_pct),
    }


def figures(summary: Summary) -> list[tuple[str, str]]:
    """Rows of the table: what is shown, and its value."""
    names = [*_FIGURES, *(_SLO_FIGURES if summary.get("goodput_slos_ms") else ())]
    rows = [(metric(name).label_with_unit, number(summary.get(name))) for name in names]
    return [*rows, ("saturated", "yes" if summary.get("saturated") else "no")]


def _points(x: Float64, y: Float64) -> dict[str, list[float]]:
    """Both columns with five significant digits."""
    return {name: [float(f"{value:.5g}") for value in column.tolist()]
            for name, column in (("x", x), ("y", y))}  # fmt: skip
