"""Dotted names of metrics, as scenarios write them: `hot.p99_ttft_ms` is a group and a metric."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sim.metrics.registry import (
    GROUP_METRICS,
    POOL_METRICS,
    QUEUE_TIME,
    RUN_METRICS,
    Better,
    Metric,
    metric,
)

HOT, COLD, TENANTS, POOLS = "hot", "cold", "tenants", "pools"


@dataclass(frozen=True, slots=True)
class MetricName:
    """A metric of all requests, of some of them, or of a server pool.

    Attributes:
        name: as scenarios write it: `p99_ttft_ms`, `tenants.chat.p99_ttft_ms`.
        group: whose requests: `""` (all), `hot`, `cold`, `tenants.chat` or `pools.decode`.
        base: the name without the group.
    """

    name: str
    group: str
    base: str

    @staticmethod
    def of(name: str) -> "MetricName":
        group, _, base = name.rpartition(".")
        is_group = group in {HOT, COLD} or group.startswith((f"{TENANTS}.", f"{POOLS}."))
        return MetricName(name, group, base) if is_group else MetricName(name, "", name)

    @property
    def metric(self) -> Metric:
        """The metric's facts from the registry."""
        if self.base.startswith(f"{QUEUE_TIME.name}."):
            # `queue_time.max_ms` is another name of `max_queue_time_ms`.
            statistic = self.base.removeprefix(f"{QUEUE_TIME.name}.").removesuffix("_ms")
            return metric(f"{statistic}_{QUEUE_TIME.name}_ms")
        return metric(self.base)

    @property
    def better(self) -> Better:
        return self.metric.better

    @property
    def label(self) -> str:
        return self.metric.label

    @property
    def unit(self) -> str:
        return self.metric.unit

    @property
    def group_label(self) -> str:
        return group_label(self.group)

    @property
    def long_label(self) -> str:
        """The label and whose requests: `p99 TTFT of hot requests`."""
        if not self.group:
            return self.label
        of = f"{self.group_label} requests"
        for kind, noun in ((TENANTS, "tenant"), (POOLS, "pool")):
            if self.group.startswith(f"{kind}."):
                of = f"{noun} {self.group_label}"
        return f"{self.label} of {of}"

    @property
    def long_label_with_unit(self) -> str:
        """`p99 TTFT of hot requests (ms)`."""
        return f"{self.long_label} ({self.unit})" if self.unit else self.long_label

    def value(self, summary: Mapping[str, Any]) -> float | None:
        """The metric's value in a run's summary; None if it is undefined or unknown there."""
        found = group_of(summary, self.group)
        for key in self.base.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        return float(found) if isinstance(found, bool | int | float) else None


def group_of(summary: Mapping[str, Any], group: str) -> Any:
    """The part of a summary about a group of requests; None if there is no such part."""
    if not group:
        return summary
    top, _, tenant = group.partition(".")  # a tenant's name may contain dots
    found = summary.get(top)
    return found.get(tenant) if tenant and isinstance(found, Mapping) else found


def group_label(group: str) -> str:
    """`all requests`, `hot`, `cold`, or the name of the tenant or the pool."""
    return group.removeprefix(f"{TENANTS}.").removeprefix(f"{POOLS}.") or "all requests"


def metric_names(tenants: Iterable[str] = (), pools: Iterable[str] = ()) -> list[str]:
    """The name of every metric that can be drawn, with these tenants and server pools."""
    groups = (HOT, COLD, *(f"{TENANTS}.{tenant}" for tenant in tenants))
    return [
        *RUN_METRICS,
        *(f"{QUEUE_TIME.name}.{statistic}_ms" for statistic in QUEUE_TIME.statistics),
        *(f"{group}.{name}" for group in groups for name in GROUP_METRICS),
        *(
            f"{POOLS}.{pool}.{name}"
            for pool in pools
            for name in chain(GROUP_METRICS, POOL_METRICS)
        ),
    ]
