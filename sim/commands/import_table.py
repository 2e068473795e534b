"""A short table of an imported run: numbers of requests and tokens, and measured latencies."""

from collections.abc import Sequence

from sim.core.units import NS_PER_MS, NS_PER_S
from sim.tables.text import aligned, number
from sim.workload.results.model import ImportedRequest
from sim.workload.stats import WorkloadStats


def import_table(
    format_: str, requests: Sequence[ImportedRequest], stats: WorkloadStats
) -> list[str]:
    """The lines of the table; latencies are of finished requests.

    As in `calibrate validate`, a request of a single token counts, with a TPOT of about 0.
    """
    failed = [request for request in requests if request.failure]
    ends = [request.finish_ns or request.arrival_ns for request in requests]
    is_known = any(request.known is not None for request in requests)
    shared = f"{stats.token_hit_pct:.1f}" if is_known else "not known"
    rows = [
        ["results", "", format_],
        ["requests", "", number(len(requests))],
        ["failed", "", number(len(failed))],
        ["in the workload", "", number(stats.num_requests)],
        ["last arrival", "s", number(requests[-1].arrival_ns / NS_PER_S)],
        ["last token", "s", number(max(ends) / NS_PER_S)],
        ["prompt tokens, mean", "", number(stats.input_tokens.mean)],
        ["output tokens, mean", "", number(stats.output_tokens.mean)],
        [f"shared prefixes, in blocks of {stats.block_size}", "%", shared],
        ["TTFT, mean", "ms", _mean_ms(_ttfts(requests))],
        ["TPOT, mean", "ms", _mean_ms(_tpots(requests))],
        ["latency, mean", "ms", _mean_ms(_latencies(requests))],
    ]
    return aligned(rows, gap=2, right={2})


def _ttfts(requests: Sequence[ImportedRequest]) -> list[float]:
    return [
        request.first_token_ns - request.arrival_ns
        for request in requests
        if request.first_token_ns is not None and not request.failure
    ]


def _tpots(requests: Sequence[ImportedRequest]) -> list[float]:
    return [
        (request.finish_ns - request.first_token_ns) / max(1, request.output_tokens - 1)
        for request in requests
        if request.finish_ns is not None
        and request.first_token_ns is not None
        and request.output_tokens is not None
    ]


def _latencies(requests: Sequence[ImportedRequest]) -> list[float]:
    return [
        request.finish_ns - request.arrival_ns
        for request in requests
        if request.finish_ns is not None
    ]


def _mean_ms(times_ns: Sequence[float]) -> str:
    return number(sum(times_ns) / len(times_ns) / NS_PER_MS if times_ns else None)
