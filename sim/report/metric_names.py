"""The numbers of a summary by name: which there are, and how axes call them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np

from sim.report.metrics import summarise
from sim.runlog import Int64, RequestColumns, RunLog, StepColumns, TokenGaps

HOT, COLD, TENANTS = "hot", "cold", "tenants"
# Counted in a summary, and of no run's making.
_NOT_DRAWN = frozenset({"wall_seconds"})
_LATENCIES = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl": "ITL",
    "e2e_latency": "end-to-end latency",
    "queue_time": "queue time",
}
# What a server is judged by, beside latencies, of which less is better.
_MORE_IS_BETTER = frozenset({
    "completed", "request_throughput", "request_goodput", "input_throughput", "output_throughput",
    "total_throughput", "slo_attainment", "cache_hit_rate_pct", "host_hit_rate_pct",
    "total_cached_tokens", "jain_ttft", "jain_throughput",
})  # fmt: skip
_LESS_IS_BETTER = frozenset({
    "rejected", "aborted", "unfinished", "retractions", "preemptions", "saturated", "duration",
    "slowest_5pct_ttft_share_pct",
})  # fmt: skip
_LABELS: Mapping[str, tuple[str, str]] = {
    "duration": ("duration", "s"),
    "submitted": ("submitted", "requests"),
    "completed": ("finished", "requests"),
    "rejected": ("rejected", "requests"),
    "aborted": ("aborted", "requests"),
    "unfinished": ("unfinished", "requests"),
    "aged": ("aged", "requests"),
    "retractions": ("retractions", ""),
    "preemptions": ("preemptions", ""),
    "simulated_steps": ("steps", ""),
    "total_input_tokens": ("prompt tokens", "tokens"),
    "total_output_tokens": ("output tokens", "tokens"),
    "total_cached_tokens": ("cached prompt tokens", "tokens"),
    "total_host_cached_tokens": ("prompt tokens found in host memory", "tokens"),
    "total_loaded_tokens": ("tokens loaded from host memory", "tokens"),
    "request_rate": ("offered load", "requests/s"),
    "request_throughput": ("throughput", "requests/s"),
    "request_goodput": ("goodput", "requests/s"),
    "input_throughput": ("prompt throughput", "tokens/s"),
    "output_throughput": ("output throughput", "tokens/s"),
    "total_throughput": ("throughput", "tokens/s"),
    "concurrency": ("requests in the system", "mean"),
    "slo_attainment": ("SLO attainment", "share"),
    "cache_hit_rate_pct": ("cache hit rate", "% of prompt tokens"),
    "host_hit_rate_pct": ("hits in host memory", "% of prompt tokens"),
    "max_wait_ms": ("longest wait", "ms"),
    "max_itl_ms": ("longest ITL", "ms"),
    "mean_decode_rows": ("decode rows a step", "mean"),
    "max_decode_rows": ("decode rows a step", "most"),
    "mean_kv_used_pct": ("KV used", "% of the pool, mean"),
    "saturated": ("saturated", "share of runs"),
    "jain_ttft": ("Jain's index of TTFT", "1: even"),
    "jain_throughput": ("Jain's index of throughput", "1: even"),
    "slowest_5pct_ttft_share_pct": ("TTFT carried by the slowest 5 %", "%"),
}


@dataclass(frozen=True, slots=True)
class MetricName:
    """A metric by its dotted name.

    Attributes:
        name: as scenarios write it: `p99_ttft_ms`, `tenants.chat.p99_ttft_ms`.
        group: whose requests: `""` for all, `hot`, `cold`, `tenants.chat`.
        base: the name without the group.
    """

    name: str
    group: str
    base: str

    @staticmethod
    def of(name: str) -> "MetricName":
        group, _, base = name.rpartition(".")
        is_group = group in {HOT, COLD} or group.startswith(f"{TENANTS}.")
        return MetricName(name, group, base) if is_group else MetricName(name, "", name)

    @property
    def better(self) -> int:
        """1 if more of it is better, -1 if less is, 0 if that cannot be said."""
        if self.base in _MORE_IS_BETTER:
            return 1
        return -1 if self.base in _LESS_IS_BETTER or self.base.endswith("_ms") else 0

    @property
    def group_label(self) -> str:
        """`all requests`, `hot`, `cold`, or the tenant's name."""
        return group_label(self.group)

    @property
    def label(self) -> str:
        """In words, without the unit: `p99 TTFT`."""
        return _label_and_unit(self.base)[0]

    @property
    def long_label(self) -> str:
        """With the part of the requests that it is of: `p99 TTFT of hot requests`."""
        if not self.group:
            return self.label
        is_tenant = self.group.startswith(f"{TENANTS}.")
        of = f"tenant {self.group_label}" if is_tenant else f"{self.group_label} requests"
        return f"{self.label} of {of}"

    @property
    def unit(self) -> str:
        """Empty where there is none."""
        return _label_and_unit(self.base)[1]

    def value(self, summary: Mapping[str, Any]) -> float | None:
        """Of a run's summary; None where it is undefined there, or unknown."""
        found: Any = summary
        for part in _path(self):
            found = found.get(part) if isinstance(found, Mapping) else None
        return float(found) if isinstance(found, bool | int | float) else None


def group_label(group: str) -> str:
    return group.removeprefix(f"{TENANTS}.") or "all requests"


def metric_names(tenants: Iterable[str] = ()) -> list[str]:
    """Every metric that can be drawn, of a workload with these tenants."""
    known = _names_without_tenants()
    of_group = [name.removeprefix(f"{HOT}.") for name in known if name.startswith(f"{HOT}.")]
    return [*known, *(f"{TENANTS}.{tenant}.{name}" for tenant in tenants for name in of_group)]


@cache
def _names_without_tenants() -> tuple[str, ...]:
    return tuple(_numbers(summarise(_empty_log()), ""))


def _numbers(values: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """What is a number, or would be one if it were defined."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{key}.")
        elif key not in _NOT_DRAWN and (value is None or isinstance(value, bool | int | float)):
            yield f"{prefix}{key}"


def _empty_log() -> RunLog:
    requests, steps = (_empty_columns(kind) for kind in (RequestColumns, StepColumns))
    nothing: Int64 = np.zeros(0, dtype=np.int64)
    return RunLog(
        RequestColumns(**requests),
        StepColumns(**steps),
        TokenGaps(nothing, nothing),
        # With a host tier, which has numbers of its own.
        meta={"host_cache_tokens": 0},
    )


def _empty_columns(kind: type[RequestColumns] | type[StepColumns]) -> dict[str, Any]:
    nothing: Int64 = np.zeros(0, dtype=np.int64)
    return {field.name: nothing if field.type is Int64 else [] for field in fields(kind)}


def _path(metric: MetricName) -> tuple[str, ...]:
    """Keys on the way to the value; a tenant's name may have dots."""
    if metric.group.startswith(f"{TENANTS}."):
        return (TENANTS, metric.group.removeprefix(f"{TENANTS}."), metric.base)
    return (*filter(None, (metric.group,)), *metric.base.split("."))


def _label_and_unit(base: str) -> tuple[str, str]:
    if base in _LABELS:
        return _LABELS[base]
    if base.startswith("queue_time."):
        # The same numbers have flat names too.
        statistic = base.removeprefix("queue_time.").removesuffix("_ms")
        return _label_and_unit(f"{statistic}_queue_time_ms")
    name, unit = (base.removesuffix("_ms"), "ms") if base.endswith("_ms") else (base, "")
    if name in _LATENCIES:
        return _LATENCIES[name], unit
    statistic, _, latency = name.partition("_")
    if latency in _LATENCIES:
        return f"{statistic} {_LATENCIES[latency]}", unit
    return name.replace("_", " "), unit
