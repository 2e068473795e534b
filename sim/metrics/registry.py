"""Every metric of a summary: its name, labels, unit and definition; and dotted names of metrics.

Tables, plots, searches, documentation and help texts take these facts from here; `metrics.json` has
the rows.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from importlib.resources import files
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple


class Better(IntEnum):
    """Which direction of a metric is better."""

    LOWER = -1
    NEITHER = 0
    HIGHER = 1


LOWER, NEITHER, HIGHER = Better.LOWER, Better.NEITHER, Better.HIGHER
# Units of counts. Headings of tables do not show them.
_COUNTED = ("", "requests", "tokens")


class Metric(NamedTuple):
    """The facts about a metric that do not depend on the run.

    Attributes:
        name: its key in a summary: `p99_ttft_ms`.
        label: its name on axes and in captions: `p99 TTFT`.
        unit: unit of its values; empty: it has none.
        heading: its name in text tables: `TTFT p99`; empty: the label.
        table_unit: its unit in text tables; None: `unit`.
    """

    name: str
    label: str
    unit: str
    definition: str
    better: Better = NEITHER
    heading: str = ""
    table_unit: str | None = None

    @property
    def label_with_unit(self) -> str:
        """`p99 TTFT (ms)`."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    @property
    def table_heading(self) -> str:
        """The heading of a column or row, without the unit: `TTFT p99`."""
        return self.heading or self.label

    @property
    def table_heading_with_unit(self) -> str:
        """`TTFT p99 ms`, `requests/s`; the heading alone for counts."""
        unit = self.unit if self.table_unit is None else self.table_unit
        if unit in _COUNTED:
            return self.table_heading
        return f"{self.table_heading}{'' if unit.startswith('/') else ' '}{unit}"

    @property
    def table_factor(self) -> float:
        """What values are multiplied by in a text table: 100 for a share shown in percent."""
        return 100 if self.unit == "share" and self.table_unit == "%" else 1

    @property
    def is_count(self) -> bool:
        """Whether the values are whole numbers."""
        return self.unit in _COUNTED


class Latency(NamedTuple):
    """A time of each request, or of each token.

    Attributes:
        name: `ttft`. Columns of request tables are named `ttft_ms`, metrics `mean_ttft_ms`.
        label: its name on axes: `TTFT`.
        heading: its name in text tables.
        words: its full name: `time to first token`.
        samples: what its statistics are over: `finished requests`.
    """

    name: str
    label: str
    heading: str
    words: str
    definition: str
    samples: str
    statistics: tuple[str, ...]


# The rows of all metrics.
_ROWS: Mapping[str, Any] = json.loads(
    (files("sim.metrics") / "metrics.json").read_text(encoding="utf-8")
)


def _latencies(kind: str) -> Mapping[str, Latency]:
    found = {}
    for name, label, heading, words, definition, samples, statistics in _ROWS[kind]:
        found[name] = Latency(
            name, label, heading, words, definition, samples, tuple(statistics.split())
        )
    return MappingProxyType(found)


LATENCIES = _latencies("latencies")
TTFT, TPOT, ITL, E2E_LATENCY, QUEUE_TIME = LATENCIES.values()
# The parts of TTFT if prefill and decode servers are disaggregated, in the order of a picture.
PHASES = _latencies("phases")
_STATISTICS = {
    "mean": "Mean", "median": "Median", "std": "Standard deviation", "p90": "90th percentile",
    "p95": "95th percentile", "p99": "99th percentile", "max": "Maximum",
}  # fmt: skip


def _statistic(latency: Latency, statistic: str) -> Metric:
    return Metric(
        f"{statistic}_{latency.name}_ms",
        f"{statistic} {latency.label}",
        "ms",
        f"{_STATISTICS[statistic]} of {latency.label} ({latency.definition}) over"
        f" {latency.samples}.",
        LOWER,
        f"{latency.heading} {statistic}",
    )


def _metrics(kind: str) -> Iterator[Metric]:
    """The metrics of the rows, and every statistic of a latency that stands for its own."""
    for row in _ROWS[kind]:
        if isinstance(row, str):
            latency = {**LATENCIES, **PHASES}[row]
            yield from (_statistic(latency, statistic) for statistic in latency.statistics)
        else:
            name, label, unit, definition, *more = row
            better = Better[more[0]] if more else NEITHER
            yield Metric(name, label, unit, definition, better, *more[1:])


# The metrics of all requests, by name.
RUN_METRICS: Mapping[str, Metric] = MappingProxyType({m.name: m for m in _metrics("run")})
# The metrics of the hot and the cold requests, and of each tenant.
GROUP_METRICS: Mapping[str, Metric] = MappingProxyType({
    each.name: each
    for each in (
        *(RUN_METRICS[name] for name in ("submitted", "completed", "request_throughput",
                                         "output_throughput")),
        *(_statistic(TTFT, name) for name in ("mean", "median", "p99", "max")),
        *(_statistic(latency, name) for latency in (TPOT, E2E_LATENCY) for name in ("mean", "p99")),
        *(RUN_METRICS[name] for name in ("cache_hit_rate_pct", "max_wait_ms", "aged")),
    )
})  # fmt: skip
# The metrics of each server pool beside those of its requests.
POOL_METRICS: Mapping[str, Metric] = MappingProxyType({
    each.name: each
    for each in (
        *_metrics("pool"),
        *(RUN_METRICS[name] for name in ("simulated_steps", "mean_decode_rows", "max_decode_rows",
                                         "mean_kv_used_pct", "max_queue_length")),
    )
})  # fmt: skip


def metric(name: str) -> Metric:
    """The metric with this name (`p99_ttft_ms`), or the latency itself (`ttft_ms`).

    The name has no group. The label of an unknown metric is its name, so that metrics of newer
    versions can be drawn too.
    """
    found = RUN_METRICS.get(name) or GROUP_METRICS.get(name) or POOL_METRICS.get(name)
    if found is not None:
        return found
    stem, unit = (name.removesuffix("_ms"), "ms") if name.endswith("_ms") else (name, "")
    better = LOWER if unit else NEITHER
    latencies = {**LATENCIES, **PHASES}
    if stem in latencies:
        latency = latencies[stem]
        return Metric(name, latency.label, unit, f"{latency.label}: {latency.definition}.", better)
    statistic, _, rest = stem.partition("_")
    if rest in latencies and statistic in _STATISTICS:
        return _statistic(latencies[rest], statistic)
    return Metric(name, stem.replace("_", " "), unit, "", better)


HOT, COLD, TENANTS, POOLS = "hot", "cold", "tenants", "pools"


class MetricName(NamedTuple):
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
