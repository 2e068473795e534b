"""The page that lists every metric of a summary, from the registry of metrics."""

from collections.abc import Iterable, Iterator

from reference.tables import keys_table
from sim.metrics.registry import (
    GROUP_METRICS,
    LATENCIES,
    PHASES,
    POOL_METRICS,
    RUN_METRICS,
    Better,
    Latency,
    Metric,
)

PATH = "reference/metrics.md"
_BETTER = {Better.HIGHER: "higher is better", Better.LOWER: "lower is better", Better.NEITHER: ""}
_INTRO = """\
# Metrics

The numbers of a run's summary by name (`simulate run FILE --format json`). Names are those of
SGLang's serving benchmark where it has the same number. A plot of a `report` section takes any of
them. With a `warmup` or a `cooldown` they are
[about the window between them](../how-to/steady-state.md).

## Times

All of them are in ms, and lower is better."""
_PHASES = """\
## Parts of TTFT

If prefill and decode are disaggregated ([pools](keys/scenario.md#pools)), TTFT is the sum of these
times, in this order, but that SGLang's decode servers allocate memory before the prefill and
vLLM's after it. All of them are in ms, and lower is better."""
_POOLS = """\
## Server pools

With [pools](keys/scenario.md#pools), these metrics are given for the servers of each pool
(`pools.NAME.busy_pct`), and those of [parts of the requests](#parts-of-the-requests) for the
requests that a server of the pool has had (`pools.NAME.p99_ttft_ms`)."""
_GROUPS = """\
## Parts of the requests

These metrics are also given for each tenant (`tenants.NAME.p99_ttft_ms`), for hot requests
(`hot.p99_ttft_ms`) and for cold requests (`cold.p99_ttft_ms`).
[Who waits](../how-to/tenants.md) explains the parts."""


def metrics_page() -> str:
    """The text of the page."""
    blocks = [
        _INTRO,
        keys_table(("time", "definition", "metrics"), map(_time_row, LATENCIES.values())),
        "## All requests",
        _table(metric for metric in RUN_METRICS.values() if metric.name not in _STATISTICS),
        _GROUPS,
        ", ".join(f"`{name}`" for name in GROUP_METRICS),
        _PHASES,
        keys_table(("time", "definition", "metrics"), map(_time_row, PHASES.values())),
        _POOLS,
        _table(POOL_METRICS.values()),
    ]
    return "\n\n".join(blocks) + "\n"


def _time_row(latency: Latency) -> tuple[str, str, str]:
    words = dict.fromkeys((latency.label, latency.words))
    definition = f"{latency.definition}, over {latency.samples}"
    return ": ".join(words), definition, ", ".join(f"`{name}`" for name in _names(latency))


def _names(latency: Latency) -> list[str]:
    return [f"{statistic}_{latency.name}_ms" for statistic in latency.statistics]


_STATISTICS = {
    name for latency in (*LATENCIES.values(), *PHASES.values()) for name in _names(latency)
}


def _table(metrics: Iterable[Metric]) -> str:
    return keys_table(("metric", "unit", "definition"), _rows(metrics))


def _rows(metrics: Iterable[Metric]) -> Iterator[tuple[str, str, str]]:
    for metric in metrics:
        better = _BETTER[metric.better]
        unit = "<br>".join(filter(None, (metric.unit, better)))
        yield f"`{metric.name}`", unit, metric.definition
