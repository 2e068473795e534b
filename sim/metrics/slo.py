"""Service level objectives: limits of latencies, and the percentile that is held against them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT_PERCENTILE = 99
_MEDIAN = 50


@dataclass(frozen=True, slots=True)
class Slo:
    """Limits of a request's latencies; None: no limit. A request is good if it meets them all.

    A request with one output token has no TPOT, so it meets every `tpot_ms`. The `percentile` of a
    latency is shown beside its limit.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_latency_ms: float | None = None
    percentile: int = DEFAULT_PERCENTILE

    def limits_ms(self) -> dict[str, float]:
        parts = {"ttft": self.ttft_ms, "tpot": self.tpot_ms, "e2e_latency": self.e2e_latency_ms}
        return {name: limit for name, limit in parts.items() if limit is not None}


def slo_limits(summary: Mapping[str, Any]) -> dict[str, float]:
    """The limits of a run's SLO by the metric that is held against each: `p99_ttft_ms`."""
    percentile = summary.get("slo_percentile", DEFAULT_PERCENTILE)
    statistic = "median" if percentile == _MEDIAN else f"p{percentile}"
    limits = summary.get("goodput_slos_ms") or {}
    return {f"{statistic}_{name}_ms": limit for name, limit in limits.items()}
