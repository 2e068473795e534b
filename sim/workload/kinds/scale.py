"""The same traffic at another rate: which keys of a `workload` section have to change."""

from collections.abc import Callable

import numpy as np

from sim.core.units import NS_PER_S
from sim.user.named_class import UserClass
from sim.workload.arrivals import Arrivals, BurstArrivals
from sim.workload.bench_config import BenchConfig
from sim.workload.config import (
    ClientsConfig,
    MixConfig,
    SessionsConfig,
    SyntheticConfig,
    TraceConfig,
    WorkloadConfig,
)
from sim.workload.traces.rows import TraceRows

Changes = dict[str, float | int]


def scaled(workload: WorkloadConfig, factor: float) -> Changes:
    """New values, by key path in the section, with which requests come `factor` times as fast.

    Closed loops have no rate: the number of clients is scaled, to a whole number. Of a benchmark,
    the rate and the limit on concurrency are. The requests themselves, and their number, stay.
    Nothing changes if all requests arrive at once, or if a class of the user's makes any of them.
    """
    changes: Changes = {}
    match workload:
        case SyntheticConfig():
            changes = _below("arrivals", _scaled_arrivals(workload.arrivals, factor))
        case SessionsConfig():
            changes = _scaled_sessions(workload, factor)
        case TraceConfig():
            if workload.arrivals is not None:
                changes = _below("arrivals", _scaled_arrivals(workload.arrivals, factor))
            else:
                changes = {"time_scale": workload.time_scale / factor}
        case ClientsConfig():
            changes = {"clients": _scaled_count(workload.clients, factor)}
        case BenchConfig():
            changes = _scaled_bench(workload, factor)
        case MixConfig():
            changes = _scaled_parts(workload, factor)
    return changes


def _scaled_sessions(workload: SessionsConfig, factor: float) -> Changes:
    if workload.arrivals is not None:
        return _below("arrivals", _scaled_arrivals(workload.arrivals, factor))
    assert workload.clients is not None  # noqa: S101 - the configuration has one of the two
    return {"clients": _scaled_count(workload.clients, factor)}


def _scaled_bench(workload: BenchConfig, factor: float) -> Changes:
    changes: Changes = {}
    if workload.request_rate is not None:
        changes["request_rate"] = workload.request_rate * factor
    if workload.max_concurrency is not None:
        changes["max_concurrency"] = _scaled_count(workload.max_concurrency, factor)
    return changes


def _scaled_parts(workload: MixConfig, factor: float) -> Changes:
    if any(isinstance(part.workload, UserClass) for part in workload.parts):
        return {}
    parts = [
        _below(f"parts.{index}.workload", scaled(part.workload, factor))
        for index, part in enumerate(workload.parts)
    ]
    return {key: value for part in parts for key, value in part.items()}


def rate_of(workload: WorkloadConfig, read: Callable[[TraceConfig], TraceRows]) -> float | None:
    """The mean rate at which requests arrive, in requests/s; `read` reads the rows of a trace.

    None if the rate depends on the answers or on draws, as with clients and sessions.
    """
    match workload:
        case SyntheticConfig():
            return _arrival_rate(workload.arrivals)
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
        return _arrival_rate(trace.arrivals)
    span_s = float(np.ptp(rows.arrival_ns)) / NS_PER_S * trace.time_scale
    return len(rows.arrival_ns) / span_s if span_s else None


def _scaled_arrivals(arrivals: Arrivals, factor: float) -> Changes:
    if isinstance(arrivals, BurstArrivals):
        return {"every_s": arrivals.every_s / factor}
    return {"rate_rps": arrivals.rate_rps * factor}


def _arrival_rate(arrivals: Arrivals) -> float | None:
    if isinstance(arrivals, BurstArrivals):
        return arrivals.size / arrivals.every_s if arrivals.every_s else None
    return arrivals.rate_rps


def _scaled_count(count: int, factor: float) -> int:
    return max(1, round(count * factor))


def _below(key: str, changes: Changes) -> Changes:
    return {f"{key}.{inner}": value for inner, value in changes.items()}
