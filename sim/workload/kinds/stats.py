"""Statistics of a workload; the rate of a `workload` section, and the same traffic at another rate.

Statistics are rates, lengths, and the hit rate of an unbounded prefix cache. `rate_of` says at
which rate the requests of a section arrive, and `scaled` which of its keys have to change so that
they come faster or slower.
"""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from sim.core.arrays import Int64
from sim.core.tokens import BlockPrompt
from sim.core.units import NS_PER_S
from sim.user.objects import UserClass
from sim.workload.arrivals import Arrivals, BurstArrivals
from sim.workload.bench_command import BenchConfig
from sim.workload.config import (
    DEFAULT_BLOCK_SIZE,
    AgentsConfig,
    ClientsConfig,
    FittedConfig,
    MixConfig,
    SessionsConfig,
    SyntheticConfig,
    TraceConfig,
    WorkloadConfig,
)
from sim.workload.reuse.blocks import num_generated
from sim.workload.reuse.infinite_cache import InfiniteCache
from sim.workload.traces.rows import TraceRows
from sim.workload.workload import ScriptedRequest, Workload, client_requests


@dataclass(frozen=True, slots=True)
class LengthStats:
    """Tokens of all prompts, or of all outputs. Percentiles interpolate linearly."""

    total: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: int


@dataclass(frozen=True, slots=True)
class WorkloadStats:
    """Statistics of a workload.

    Attributes:
        num_clients: closed-loop clients; of a benchmark, the limit on its requests under way.
        span_s: time from the first arrival to the last; None with clients or a benchmark.
        rate_rps: requests / span; None if the span is 0 or None.
        gap_cv: coefficient of variation of the gaps between arrivals; None like `rate_rps`.
        output_tokens: lengths of outputs, cut at the clients' limits.
        block_hit_pct: percentage of the prompts' blocks that `InfiniteCache` finds. A partial block
            counts as one block.
        token_hit_pct: the same in tokens.
    """

    num_requests: int
    num_clients: int
    span_s: float | None
    rate_rps: float | None
    gap_cv: float | None
    input_tokens: LengthStats
    output_tokens: LengthStats
    block_size: int
    block_hit_pct: float
    token_hit_pct: float


def workload_stats(workload: Workload, block_size: int | None = None) -> WorkloadStats:
    """Compute the statistics, going through the workload once.

    The prefix cache sees open-loop requests first, by arrival, then the first turns of all clients,
    then the second turns, and so on; then the requests of a benchmark. The warm-up of a benchmark
    counts nowhere. `block_size` is in tokens; None: that of the first prompt if this is given by
    block ids, else 512.
    """
    arrivals, inputs, outputs = array("q"), array("q"), array("q")
    cache = None if block_size is None else InfiniteCache(block_size)
    for request in _in_order(workload):
        spec = request.spec
        if cache is None:
            block_size = DEFAULT_BLOCK_SIZE
            if isinstance(spec.prompt, BlockPrompt):
                block_size = spec.prompt.block_size
            cache = InfiniteCache(block_size)
        cache.add(spec.prompt)
        arrivals.append(spec.arrival_ns)
        inputs.append(len(spec.prompt))
        outputs.append(num_generated(request))
    clients, phases = workload.clients, workload.phases
    span_s, rate_rps, gap_cv = _timing(
        np.array(arrivals, dtype=np.int64), closed_loop=bool(clients) or bool(phases)
    )
    block_hit_pct, token_hit_pct = (0.0, 0.0) if cache is None else cache.hit_pcts()
    return WorkloadStats(
        num_requests=len(inputs),
        num_clients=len(clients) + sum(phase.places or 0 for phase in phases[-1:]),
        span_s=span_s,
        rate_rps=rate_rps,
        gap_cv=gap_cv,
        input_tokens=_lengths(np.array(inputs, dtype=np.int64)),
        output_tokens=_lengths(np.array(outputs, dtype=np.int64)),
        block_size=block_size or DEFAULT_BLOCK_SIZE,
        block_hit_pct=block_hit_pct,
        token_hit_pct=token_hit_pct,
    )


def _in_order(workload: Workload) -> Iterator[ScriptedRequest]:
    """The requests that count, in the order in which the prefix cache sees them."""
    yield from workload.arrivals()
    for turns in zip_longest(*workload.clients):
        yield from client_requests(turn for turn in turns if turn is not None)
    for phase in workload.phases:
        yield from (turn.request for turn in phase.turns if not turn.request.spec.warm_up)


def _timing(
    arrival_ns: Int64, *, closed_loop: bool
) -> tuple[float | None, float | None, float | None]:
    if closed_loop or not len(arrival_ns):
        return None, None, None
    span_s = int(arrival_ns[-1] - arrival_ns[0]) / NS_PER_S
    if not span_s:
        return span_s, None, None
    gaps = np.diff(arrival_ns)
    return span_s, len(arrival_ns) / span_s, float(gaps.std() / gaps.mean())


def _lengths(tokens: Int64) -> LengthStats:
    if not len(tokens):
        return LengthStats(0, 0.0, 0.0, 0.0, 0.0, 0)
    p50, p90, p99 = np.percentile(tokens, [50, 90, 99]).tolist()
    return LengthStats(int(tokens.sum()), float(tokens.mean()), p50, p90, p99, int(tokens.max()))


Changes = dict[str, float | int]
# Units of loads that are whole numbers.
WHOLE = ("at a time", "clients")


def scaled(workload: WorkloadConfig, factor: float, num_factor: float | None = None) -> Changes:
    """New values, by key path in the section, with which requests come `factor` times as fast.

    There are `num_factor` times as many requests or sessions, rounded. Without it: `factor` times
    as many, so that the traffic lasts as long and queues have as much time to grow. Only a trace
    keeps its requests, and ends earlier. Closed loops have no rate: there the number of clients is
    scaled. Of a benchmark, both the rate and the limit on concurrency are scaled. There are no new
    values if a class of the user's makes any of the requests, or if a benchmark has neither a rate
    nor such a limit.
    """
    changes: Changes = {}
    num_factor = factor if num_factor is None else num_factor
    match workload:
        case SyntheticConfig():
            changes = _below("arrivals", _scaled_arrivals(workload.arrivals, factor))
            if changes:
                changes["num_requests"] = _scaled_count(workload.num_requests, num_factor)
        case SessionsConfig() | AgentsConfig():
            changes = _scaled_sessions(workload, factor, num_factor)
        case TraceConfig() | FittedConfig():
            changes = _scaled_times(workload, factor)
        case ClientsConfig():
            changes = {"clients": _scaled_count(workload.clients, factor)}
        case BenchConfig():
            changes = _scaled_bench(workload, factor, num_factor)
        case MixConfig():
            changes = _scaled_parts(workload, factor, num_factor)
    return changes


def _scaled_sessions(
    workload: SessionsConfig | AgentsConfig, factor: float, num_factor: float
) -> Changes:
    if workload.arrivals is not None:
        changes = _below("arrivals", _scaled_arrivals(workload.arrivals, factor))
        count = _scaled_count(workload.sessions, num_factor)
        return {**changes, "sessions": count} if changes else {}
    if workload.at_a_time is not None:
        return {"at_a_time": _scaled_count(workload.at_a_time, factor)}
    clients = getattr(workload, "clients", None)
    return {} if clients is None else {"clients": _scaled_count(clients, factor)}


def _scaled_times(workload: TraceConfig | FittedConfig, factor: float) -> Changes:
    if isinstance(workload, TraceConfig) and workload.at_a_time is not None:
        return {"at_a_time": _scaled_count(workload.at_a_time, factor)}
    if isinstance(workload, TraceConfig) and workload.arrivals is not None:
        return _below("arrivals", _scaled_arrivals(workload.arrivals, factor))
    return {"time_scale": workload.time_scale / factor}


def _scaled_bench(workload: BenchConfig, factor: float, num_factor: float) -> Changes:
    changes: Changes = {}
    if workload.request_rate is not None:
        changes["request_rate"] = workload.request_rate * factor
    if workload.max_concurrency is not None:
        changes["max_concurrency"] = _scaled_count(workload.max_concurrency, factor)
    if changes:
        changes["num_prompts"] = _scaled_count(workload.num_prompts, num_factor)
    return changes


def _scaled_parts(workload: MixConfig, factor: float, num_factor: float) -> Changes:
    if any(isinstance(part.workload, UserClass) for part in workload.parts):
        return {}
    parts = [
        _below(f"parts.{index}.workload", scaled(part.workload, factor, num_factor))
        for index, part in enumerate(workload.parts)
    ]
    return {key: value for part in parts for key, value in part.items()}


def load_of(
    workload: WorkloadConfig, read: Callable[[TraceConfig], TraceRows]
) -> tuple[float, str]:
    """The number that `scaled` multiplies, and its unit; 1 if several numbers are multiplied."""
    rate = rate_of(workload, read)
    if rate is not None:
        return rate, "requests/s"
    match workload:
        case (
            BenchConfig(max_concurrency=int(most))
            | TraceConfig(at_a_time=int(most))
            | SessionsConfig(at_a_time=int(most))
            | AgentsConfig(at_a_time=int(most))
        ):
            return most, "at a time"
        case ClientsConfig() | SessionsConfig(clients=int()):
            return workload.clients or 0, "clients"
        case SessionsConfig(arrivals=arrivals) | AgentsConfig(arrivals=arrivals) if arrivals:
            return arrival_rate(arrivals) or 0.0, "sessions/s"
        case _:
            return 1.0, "times the traffic"


def rate_of(workload: WorkloadConfig, read: Callable[[TraceConfig], TraceRows]) -> float | None:
    """The mean rate at which requests arrive, in requests/s; `read` reads the rows of a trace.

    None if the rate depends on the answers or on draws, as with clients and sessions, if all
    requests arrive at once, or if a class of the user's makes any of them.
    """
    match workload:
        case SyntheticConfig():
            return arrival_rate(workload.arrivals)
        case TraceConfig():
            return _trace_rate(workload, read(workload))
        case BenchConfig():
            return None if workload.max_concurrency else workload.request_rate
        case MixConfig():
            rates = [rate_of(part.workload, read) for part in workload.parts]
            known = [rate for rate in rates if rate is not None]
            return sum(known) if len(known) == len(rates) else None
        case _:
            return None


def _trace_rate(trace: TraceConfig, rows: TraceRows) -> float | None:
    if rows.closed_loop is not None:
        return None
    if trace.arrivals is not None:
        return arrival_rate(trace.arrivals)
    span_s = float(np.ptp(rows.arrival_ns)) / NS_PER_S * trace.time_scale
    return len(rows.arrival_ns) / span_s if span_s else None


def _scaled_arrivals(arrivals: Arrivals, factor: float) -> Changes:
    if isinstance(arrivals, BurstArrivals):
        return {"every_s": arrivals.every_s / factor}
    return {"rate_rps": arrivals.rate_rps * factor}


def arrival_rate(arrivals: Arrivals) -> float | None:
    """The mean rate at which requests or sessions arrive, in 1/s; None: all arrive at once."""
    if isinstance(arrivals, BurstArrivals):
        return arrivals.size / arrivals.every_s if arrivals.every_s else None
    return arrivals.rate_rps


def _scaled_count(count: int, factor: float) -> int:
    return max(1, round(count * factor))


def _below(key: str, changes: Changes) -> Changes:
    return {f"{key}.{inner}": value for inner, value in changes.items()}
