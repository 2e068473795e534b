"""The figures that a benchmark's client prints, in its own words and by its own definitions.

Requests, latencies and quantiles are those of `sim.metrics`; a client differs in what it divides by
and in what it calls things. The definitions are those of SGLang 0.5.23
(`sglang.benchmark.serving`), vLLM 0.19.0 (`vllm.benchmarks.serve`), InferenceX at 843c6254f
(`utils/bench_serving/benchmark_serving.py`) and AIPerf 0.13.0 (`aiperf.metrics.types`). Left out
are figures that need the text of the answers (tokens counted anew) or the time of every token (the
largest number of tokens in a second, AIPerf's time to the second token).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.metrics.latencies import finished_mask, quantiles, request_latencies, statistics
from sim.metrics.rates import ratio
from sim.metrics.registry import ITL, LATENCIES, Latency
from sim.runlog import RunLog

Figures = dict[str, dict[str, Any]]


class _FigureSection(NamedTuple):
    """Statistics of one latency under a heading; `word` is what the client calls the latency."""

    heading: str
    latency: Latency
    word: str
    statistics: tuple[str, ...]


# By client: its program, its sections, and what it prints first: its words, and keys of `_counts`.
_CLIENTS = json.loads((files("sim.metrics") / "clients.json").read_text(encoding="utf-8"))


def _sections(name: str) -> Iterator[_FigureSection]:
    for heading, latency, word, shown in _CLIENTS[name]["sections"]:
        yield _FigureSection(heading, LATENCIES[latency], word, tuple(shown.split()))


def client_figures(log: RunLog, num_good: int | None) -> dict[str, Any]:
    """`program`, and `figures`: what it prints by heading and label; None where undefined.

    The log's meta data say in `client` what the client was. `num_good` requests are within the
    limits of the SLO; None: there are no limits.
    """
    client: Mapping[str, Any] = log.meta["client"]  # type: ignore[assignment]
    name = client["name"]
    program = _CLIENTS[name]["program"]
    if name == "aiperf":
        return {"program": program, "figures": _aiperf(log, client)}
    counts = _counts(log, client, num_good)
    head = {label: counts[key] for label, key in _CLIENTS[name]["head"].items() if key in counts}
    figures: Figures = {"Serving Benchmark Result": head}
    for section in _sections(name):
        found = _latency(log, section.latency)
        figures[section.heading] = {
            f"{statistic.capitalize()} {section.word} (ms)": found[statistic]
            for statistic in section.statistics
        }
    return {"program": program, "figures": figures}


# What a run without a benchmark's client knows of one.
_NO_CLIENT = {
    "max_concurrency": None, "request_rate": None, "special_tokens": 0, "first_asked_ns": 0,
    "sending_ns": 0,
}  # fmt: skip


def as_vllm_bench(log: RunLog) -> RunLog:
    """A copy of the log of which the client is `vllm bench serve`, so that its block is printed."""
    client: Mapping[str, Any] = log.meta.get("client", _NO_CLIENT)  # type: ignore[assignment]
    return replace(log, meta={**log.meta, "client": {**client, "name": "vllm"}})


def _counts(log: RunLog, client: Mapping[str, Any], num_good: int | None) -> dict[str, Any]:
    """What the first lines are made of; a client's setting that is not given is not there."""
    done = log.requests.rows(finished_mask(log.requests))
    completed = len(done.rid)
    inputs = int(done.prompt_tokens.sum()) - client["special_tokens"] * completed
    outputs = int(done.output_tokens.sum())
    seconds = _clock_s(log, client)
    in_system_s = float(request_latencies(done).e2e_latency_ms.sum()) / 1e3
    counts = {
        "completed": completed,
        "failed": len(log.requests.rid) - completed,
        "seconds": seconds,
        "inputs": inputs,
        "outputs": outputs,
        "requests_per_s": ratio(completed, seconds),
        "inputs_per_s": ratio(inputs, seconds),
        "outputs_per_s": ratio(outputs, seconds),
        "tokens_per_s": ratio(inputs + outputs, seconds),
        "concurrency": ratio(in_system_s, seconds),
        "peak": _peak(done.arrival_ns, done.finish_ns),
    }
    if num_good is not None:
        counts["good_per_s"] = ratio(num_good, seconds)
        counts["good_pct"] = ratio(100 * num_good, len(log.requests.rid))
    return counts | {
        key: client[key] for key in ("max_concurrency", "request_rate") if client[key] is not None
    }


def _clock_s(log: RunLog, client: Mapping[str, Any]) -> float | None:
    """From the start of the client's clock until it has sent all requests and has all answers."""
    finish_ns = log.requests.finish_ns[finished_mask(log.requests)]
    if not len(finish_ns):
        return None
    begin_ns = int(log.requests.arrival_ns.min()) - int(client["first_asked_ns"])
    return max(int(finish_ns.max()) - begin_ns, int(client["sending_ns"])) / NS_PER_S


def _peak(arrival_ns: Int64, finish_ns: Int64) -> int:
    """The most requests that are under way at any time in one whole second of the run."""
    if not len(arrival_ns):
        return 0
    begin_ns = arrival_ns.min()
    first, last = (arrival_ns - begin_ns) // NS_PER_S, (finish_ns - begin_ns) // NS_PER_S
    # Only of seconds in which something changes: a run may take years.
    seconds, place = np.unique(np.concatenate((first, last + 1)), return_inverse=True)
    changes = np.zeros(len(seconds), dtype=np.int64)
    np.add.at(changes, place[: len(first)], 1)
    np.add.at(changes, place[len(first) :], -1)
    return int(np.cumsum(changes).max())


def _latency(log: RunLog, latency: Latency) -> dict[str, float | None]:
    """The usual statistics of a latency in ms, and `p99.9`."""
    counts = None
    if latency is ITL:
        samples, counts = log.token_gaps.gap_ns / NS_PER_MS, log.token_gaps.count
    else:
        of_requests = request_latencies(log.requests)._asdict()[f"{latency.name}_ms"]
        samples = of_requests[finished_mask(log.requests) & ~np.isnan(of_requests)]
    rare = quantiles(samples, [99.9], counts)
    return {**statistics(samples, counts), "p99.9": rare[0] if rare else None}


def _aiperf(log: RunLog, client: Mapping[str, Any]) -> Figures:
    """One row for each metric: what AIPerf calls ITL is a request's time per output token."""
    requests = log.requests.rows(finished_mask(log.requests))
    latencies = request_latencies(requests)
    tpot_ms = latencies.tpot_ms[~np.isnan(latencies.tpot_ms)]
    samples: dict[str, Float64] = {
        "Time to First Token (ms)": latencies.ttft_ms,
        "Request Latency (ms)": latencies.e2e_latency_ms,
        "Inter Token Latency (ms)": tpot_ms,
        "Output Token Throughput Per User (tokens/sec/user)": 1e3 / tpot_ms[tpot_ms > 0],
        "Output Sequence Length (tokens)": requests.output_tokens.astype(np.float64),
        "Input Sequence Length (tokens)": (
            requests.prompt_tokens.astype(np.float64) - client["special_tokens"]
        ),
    }
    seconds = None
    if len(requests.rid):
        seconds = int(requests.finish_ns.max() - requests.arrival_ns.min()) / NS_PER_S
    totals = {
        "Output Token Throughput (tokens/sec)": ratio(int(requests.output_tokens.sum()), seconds),
        "Request Throughput (requests/sec)": ratio(len(requests.rid), seconds),
        "Request Count (requests)": len(requests.rid),
    }
    rows = {label: _aiperf_row(values) for label, values in samples.items()}
    return rows | {label: {"avg": value} for label, value in totals.items()}


def _aiperf_row(values: Float64) -> dict[str, float | None]:
    found = statistics(values)
    low = float(values.min()) if len(values) else None
    return {
        "avg": found["mean"],
        "min": low,
        "max": found["max"],
        "p99": found["p99"],
        "p90": found["p90"],
        "p50": found["median"],
        "std": found["std"],
    }
