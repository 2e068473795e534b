"""Every metric of a summary: its name, labels, unit, definition, and which direction is better.

Tables, plots, searches, documentation and help texts take these facts from here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType


class Better(IntEnum):
    """Which direction of a metric is better."""

    LOWER = -1
    NEITHER = 0
    HIGHER = 1


LOWER, NEITHER, HIGHER = Better.LOWER, Better.NEITHER, Better.HIGHER
# Units of counts. Headings of tables do not show them.
_COUNTED = ("", "requests", "tokens")


@dataclass(frozen=True, slots=True)
class Metric:
    """The facts about a metric that do not depend on the run.

    Attributes:
        name: its key in a summary: `p99_ttft_ms`.
        label: its name on axes and in captions: `p99 TTFT`.
        unit: unit of its values; empty: it has none.
        definition: one sentence.
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


@dataclass(frozen=True, slots=True)
class Latency:
    """A time of each request, or of each token.

    Attributes:
        name: `ttft`. Columns of request tables are named `ttft_ms`, metrics `mean_ttft_ms`.
        label: its name on axes: `TTFT`.
        heading: its name in text tables.
        words: its full name: `time to first token`.
        samples: what its statistics are over: `finished requests`.
        statistics: the statistics that a summary has.
    """

    name: str
    label: str
    heading: str
    words: str
    definition: str
    samples: str
    statistics: tuple[str, ...]


_USUAL = ("mean", "median", "std", "p90", "p95", "p99")
TTFT = Latency(
    "ttft", "TTFT", "TTFT", "time to first token", "first token - arrival",
    "finished requests", _USUAL,
)  # fmt: skip
TPOT = Latency(
    "tpot", "TPOT", "TPOT", "time per output token",
    "(end-to-end latency - TTFT) / (output tokens - 1)",
    "finished requests of two output tokens or more", _USUAL,
)  # fmt: skip
ITL = Latency(
    "itl", "ITL", "ITL", "inter-token latency",
    "time between two consecutive tokens of a request", "all pairs of consecutive tokens", _USUAL,
)  # fmt: skip
E2E_LATENCY = Latency(
    "e2e_latency", "end-to-end latency", "end to end", "end-to-end latency", "finish - arrival",
    "finished requests", _USUAL,
)  # fmt: skip
QUEUE_TIME = Latency(
    "queue_time", "queue time", "queue time", "queue time",
    "decision of the first batch the request was in - arrival",
    "finished requests", ("mean", "median", "p90", "p95", "p99", "max"),
)  # fmt: skip
LATENCIES: Mapping[str, Latency] = MappingProxyType(
    {latency.name: latency for latency in (TTFT, TPOT, ITL, E2E_LATENCY, QUEUE_TIME)}
)
_HANDED_OVER = "finished requests that a prefill server handed over"
# The parts of TTFT if prefill and decode servers are disaggregated, in the order of a picture.
PHASES: Mapping[str, Latency] = MappingProxyType({
    phase.name: phase
    for phase in (
        Latency(name, label, label, label, definition, _HANDED_OVER,
                ("mean", "median", "p90", "p95", "p99"))
        for name, label, definition in (
            ("memory_wait", "wait for memory",
             ("from arrival, or from the prompt's end if it is prefilled first, until its decode"
              " server has memory for its prompt")),
            ("prefill_queue", "wait for prefill",
             ("from arrival, or from when its decode server has memory if that is before, until its"
              " first batch is decided")),
            ("prefill", "prefill", "from the decision of its first batch to its prompt's end"),
            ("transfer", "transfer",
             ("from its prompt's end, or from when its decode server has memory if that is later,"
              " until its KV is there")),
            ("decode_queue", "wait to decode",
             "from when its KV is at its decode server to its first token"),
        )
    )
})  # fmt: skip
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


def _statistics(*latencies: Latency) -> Iterator[Metric]:
    for latency in latencies:
        yield from (_statistic(latency, statistic) for statistic in latency.statistics)


# fmt: off
_RUN_METRICS = (
    Metric("duration", "duration", "s",
           "Time from the first arrival to the last finish; rates divide by it.", LOWER),
    Metric("completed", "finished", "requests", "Requests that ran to their end.", HIGHER),
    Metric("total_input_tokens", "prompt tokens", "tokens", "Prompt tokens of finished requests."),
    Metric("total_output_tokens", "output tokens", "tokens",
           "Output tokens of finished requests."),
    Metric("request_throughput", "throughput", "requests/s", "Finished requests per second.",
           HIGHER, "requests", "/s"),
    Metric("input_throughput", "prompt throughput", "tokens/s",
           "Prompt tokens per second, of finished requests.", HIGHER, "input"),
    Metric("output_throughput", "output throughput", "tokens/s",
           "Output tokens per second, of finished requests.", HIGHER, "output"),
    Metric("total_throughput", "throughput", "tokens/s",
           "Prompt and output tokens per second, of finished requests.", HIGHER, "all"),
    Metric("concurrency", "requests in the system", "mean",
           "Mean number of requests in the system: the sum of all end-to-end latencies over the"
           " duration.", NEITHER, "concurrency", ""),
    *_statistics(TTFT, TPOT, ITL, E2E_LATENCY),
    Metric("request_goodput", "goodput", "requests/s",
           "Requests per second that finished within every limit of the SLO.", HIGHER,
           table_unit="/s"),
    Metric("slo_attainment", "SLO attainment", "share",
           "Share of all submitted requests that finished within every limit of the SLO.",
           HIGHER, "SLO met", "%"),
    Metric("total_cached_tokens", "cached prompt tokens", "tokens",
           "Prompt tokens found in the cache when their request was first admitted.", HIGHER),
    Metric("cache_hit_rate_pct", "cache hit rate", "% of prompt tokens",
           "Prompt tokens found in the cache at first admission / prompt tokens, over all admitted"
           " requests, finished or not.", HIGHER, table_unit="%"),
    Metric("total_host_cached_tokens", "prompt tokens found in host memory", "tokens",
           "The cached prompt tokens that were loaded back from host memory; only with a host"
           " tier."),
    Metric("host_hit_rate_pct", "hits in host memory", "% of prompt tokens",
           "The part of the cache hit rate that was loaded back from host memory; only with a host"
           " tier.", HIGHER, "from host memory", "%"),
    Metric("total_loaded_tokens", "tokens loaded from host memory", "tokens",
           "All tokens loaded back from host memory, at later admissions too; only with a host"
           " tier.",
           NEITHER, "tokens loaded"),
    Metric("drafted_tokens", "draft tokens", "tokens",
           "Draft tokens that were verified; only with speculative decoding."),
    Metric("accepted_tokens", "accepted draft tokens", "tokens",
           "Draft tokens that were accepted and came out; only with speculative decoding.", HIGHER),
    Metric("mean_acceptance_length", "mean acceptance length", "tokens a step",
           "1 + accepted draft tokens / steps of a request that verified draft tokens; only with"
           " speculative decoding.", HIGHER, "acceptance length", ""),
    *_statistics(QUEUE_TIME),
    Metric("retractions", "retractions", "",
           "Times that a running request was put back into the queue because memory ran out.",
           LOWER),
    Metric("preemptions", "preemptions", "",
           "Times that a running request was stopped to make room for another one.", LOWER),
    Metric("aged", "aged", "requests", "Requests whose wait reached FAIRNESS_T at some time."),
    Metric("max_itl_ms", "longest ITL", "ms",
           "The longest time between two consecutive tokens of a request.", LOWER),
    Metric("max_wait_ms", "longest wait", "ms",
           "The longest time from the arrival of a request, if it was not rejected, to its first"
           " batch; requests that still wait at the log's end count up to then.", LOWER),
    Metric("saturated", "saturated", "share of runs",
           "Whether the load exceeds capacity: the queue grows for as long as requests arrive.",
           LOWER, table_unit=""),
    Metric("mean_decode_rows", "decode rows a step", "mean",
           "Mean number of requests that a step decodes, over the steps that decode any."),
    Metric("max_decode_rows", "decode rows a step", "most",
           "The largest number of requests that a step decodes."),
    Metric("mean_kv_used_pct", "KV used", "% of the pool, mean",
           "Share of the KV pool that running requests hold, mean over steps; tokens that are only"
           " cached do not count."),
    Metric("max_queue_length", "longest queue", "requests",
           "The largest number of requests of a server that a step left waiting; 0: nobody waited"
           " for longer than the step that ran when they arrived."),
    Metric("jain_ttft", "Jain's index of TTFT", "1: even",
           "Jain's index of the tenants' mean TTFTs: 1 if all are equal, 1 / n if all but one of n"
           " tenants have 0.", HIGHER),
    Metric("jain_throughput", "Jain's index of throughput", "1: even",
           "Jain's index of each tenant's finished requests per second / sent requests per second.",
           HIGHER),
    Metric("slowest_5pct_ttft_share_pct", "TTFT carried by the slowest 5 %", "%",
           "Share of the sum of all TTFTs that the slowest 5 % of finished requests have; 5 % if"
           " all TTFTs are equal.", LOWER),
    Metric("submitted", "submitted", "requests", "Requests that arrived."),
    Metric("rejected", "rejected", "requests",
           "Requests refused on arrival because they can never be served.", LOWER),
    Metric("aborted", "aborted", "requests",
           "Requests that ended before their answers were complete: their clients gave up,"
           " they were late, too many waited, their KV was lost, or they did not fit even when"
           " alone in the pool.", LOWER),
    Metric("unfinished", "unfinished", "requests",
           "Requests still waiting or running at the end of the log.", LOWER),
    Metric("request_rate", "offered load", "requests/s",
           "Requests sent per second, from the first arrival to the last."),
    Metric("gpu_hours", "GPU-hours", "GPU h",
           "GPUs of a replica x hours from its start until it has stopped, over all replicas; only"
           " with autoscale.", LOWER, table_unit=""),
    Metric("replica_hours", "replica-hours", "h",
           "Hours from a replica's start until it has stopped, over all replicas; only with"
           " autoscale.", LOWER),
    Metric("mean_replicas", "replicas", "mean",
           "Mean number of replicas that start, serve or drain: the replica-hours over the run's"
           " hours; only with autoscale.", LOWER, "replicas, mean", ""),
    Metric("replica_starts", "starts of replicas", "",
           "Replicas that were started during the run; only with autoscale.", LOWER),
    Metric("time_below_slo_s", "time below SLO", "s",
           "Minutes in which fewer of the arriving requests finished within the SLO than its"
           " percentile says, in seconds; minutes without arrivals do not count; only with"
           " autoscale.", LOWER),
    Metric("simulated_steps", "steps", "", "Steps of all replicas."),
    *_statistics(*PHASES.values()),
    Metric("transfers", "transfers", "",
           "Transfers of KV that arrived: one for each part of a prompt that is sent; only with"
           " prefill and decode servers."),
    Metric("failed_transfers", "transfers failed", "",
           "Transfers that were given up, and whose requests ended; only with prefill and decode"
           " servers.", LOWER),
    Metric("retried_transfers", "transfers tried again", "",
           "Attempts to transfer after the first; only with prefill and decode servers.", LOWER),
    Metric("mean_transfer_queue_ms", "queue of transfers", "ms",
           "Mean time that a transfer waits for others of its sender; only with prefill and decode"
           " servers.", LOWER, "queue of transfers mean"),
    Metric("kv_sent_gb", "KV sent", "GB",
           "Bytes of the transfers that arrived; only with prefill and decode servers."),
    Metric("kv_sent_gb_s", "KV sent", "GB/s",
           "Bytes of the transfers that arrived, per second from the run's first arrival to its"
           " last finish; only with prefill and decode servers."),
)
_POOL_METRICS = (
    Metric("busy_pct", "busy", "% of the time",
           "Share of the time from the first arrival to the last finish in which the pool's servers"
           " compute, mean over its servers; with autoscale, over those that there are.",
           table_unit="%"),
    Metric("mean_running", "running", "requests, mean",
           "Mean number of requests that the pool's servers prefill or decode.", NEITHER, "running",
           ""),
    Metric("mean_queue_length", "queue", "requests, mean",
           "Mean number of requests that wait at the pool's servers: for their prefill, for"
           " memory on a decode server, or there, with their KV, to decode.", LOWER, "queue", ""),
    Metric("prefill_throughput", "prompt tokens computed", "tokens/s",
           "Prompt tokens that the pool's servers compute per second.", HIGHER, "prefill"),
    Metric("decode_throughput", "tokens decoded", "tokens/s",
           "Tokens that the pool's servers decode per second.", HIGHER, "decode"),
)
# fmt: on
# The metrics of all requests, by name.
RUN_METRICS: Mapping[str, Metric] = MappingProxyType({m.name: m for m in _RUN_METRICS})
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
        *_POOL_METRICS,
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
