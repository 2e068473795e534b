"""Quantiles of latencies. A sweep stores them for each point, to draw distributions later."""

from typing import Any

from sim.core.arrays import Bools, Float64, Int64
from sim.core.units import NS_PER_MS
from sim.metrics.groups import group_masks
from sim.metrics.latencies import finished_mask, request_latencies
from sim.metrics.quantiles import quantiles
from sim.runlog import RunLog

PERCENTS: tuple[float, ...] = (*range(100), 99.5, 99.9, 100)
# Milliseconds are rounded to microseconds.
_DIGITS = 3


def add_quantiles(summary: dict[str, Any], log: RunLog) -> dict[str, Any]:
    """A run's summary with the quantiles of its latencies at `PERCENTS`, in milliseconds.

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
