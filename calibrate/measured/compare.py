"""Compares a simulation with a measured run: latencies, makespan and throughput."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from calibrate.measured.pairs import MeasuredPairs, Times
from sim.core.arrays import Float64
from sim.core.errors import InputError
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.metrics.latencies import statistics

# Names in `Times.latencies_ms`, and in tables.
LATENCIES: Mapping[str, str] = {"ttft": "TTFT", "tpot": "TPOT", "latency": "latency"}
# Names in `statistics`, and in tables and files.
_STATISTICS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
STATISTICS = tuple(_STATISTICS.values())
# Tokens that came in one packet have a measured TPOT below this share of the run's median TPOT: no
# step is so short. Relative to it, every simulated TPOT is many times too long.
TOGETHER = 0.05
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class ComparedValue:
    """One number of both runs; `error_pct` is simulated / measured - 1, or None if undefined."""

    measured: float | None
    simulated: float | None
    error_pct: float | None

    @classmethod
    def of(cls, measured: float | None, simulated: float | None) -> "ComparedValue":
        error_pct = None
        if measured and simulated is not None:
            error_pct = 100 * (simulated / measured - 1)
        return cls(measured, simulated, error_pct)


@dataclass(frozen=True, slots=True)
class LatencyErrors:
    """Errors of one latency, over the requests that have it in both runs.

    Attributes:
        num_requests: number of these requests.
        values: by name of the statistic (`STATISTICS`), ms.
        request_error_pct: mean over requests of |simulated - measured| / measured, in percent.
        num_left_out: requests left out of that mean: their measured latency is 0, or their TPOT
            is that of tokens that came together (`TOGETHER`).
    """

    num_requests: int
    values: Mapping[str, ComparedValue]
    request_error_pct: float | None
    num_left_out: int


@dataclass(frozen=True, slots=True)
class ArrivalShift:
    """The differences between measured and simulated times of arrival.

    Attributes:
        shift_ns: median of measured - simulated: the difference of the clocks.
        spread_ms: largest difference of a request's shift from the median.
    """

    shift_ns: int
    spread_ms: float


@dataclass(frozen=True, slots=True)
class RunComparison:
    """A simulation against a measured run, request by request and as a whole.

    Attributes:
        pairs: the requests compared.
        latencies: by name (`LATENCIES`).
        makespan_s: from the first arrival to the last finish of the compared requests.
        output_throughput: their output tokens per second of the makespan.
        arrivals: whether simulated requests arrive when the measured ones did.
    """

    pairs: MeasuredPairs
    latencies: Mapping[str, LatencyErrors]
    makespan_s: ComparedValue
    output_throughput: ComparedValue
    arrivals: ArrivalShift


def compare(pairs: MeasuredPairs) -> RunComparison:
    """Raises InputError if no request finished in both runs."""
    if not len(pairs):
        raise InputError(
            f"none of the {pairs.num_judged} requests finished in both runs"
            f" ({len(pairs.only_measured)} are not in the simulation,"
            f" {len(pairs.failed_measured)} did not finish when measured,"
            f" {len(pairs.failed_simulated)} do not finish in the simulation)"
        )
    measured, simulated = pairs.measured, pairs.simulated
    ours, theirs = measured.latencies_ms(), simulated.latencies_ms()
    makespans_s = _makespan_s(measured), _makespan_s(simulated)
    return RunComparison(
        pairs=pairs,
        latencies={
            name: latency_errors(ours[name], theirs[name], TOGETHER if name == "tpot" else 0)
            for name in LATENCIES
        },
        makespan_s=ComparedValue.of(*makespans_s),
        output_throughput=ComparedValue.of(
            _rate(measured, makespans_s[0]), _rate(simulated, makespans_s[1])
        ),
        arrivals=_arrivals(measured, simulated),
    )


def latency_errors(measured: Float64, simulated: Float64, least_share: float = 0) -> LatencyErrors:
    """Errors of one latency; rows with NaN in either run are left out.

    Requests whose latency is at most `least_share` of the measured median are left out of
    `request_error_pct`.
    """
    known = ~np.isnan(measured) & ~np.isnan(simulated)
    measured, simulated = measured[known], simulated[known]
    ours, theirs = statistics(measured), statistics(simulated)
    above = measured > least_share * (float(np.median(measured)) if len(measured) else 0)
    shares = np.abs(simulated[above] - measured[above]) / measured[above]
    return LatencyErrors(
        num_requests=len(measured),
        values={
            word: ComparedValue.of(ours[name], theirs[name]) for name, word in _STATISTICS.items()
        },
        request_error_pct=100 * float(shares.mean()) if len(shares) else None,
        num_left_out=int((~above).sum()),
    )


def _makespan_s(times: Times) -> float:
    return int(times.finish_ns.max() - times.arrival_ns.min()) / NS_PER_S


def _rate(times: Times, duration_s: float) -> float | None:
    return int(times.output_tokens.sum()) / duration_s if duration_s else None


def _arrivals(measured: Times, simulated: Times) -> ArrivalShift:
    apart_ns = measured.arrival_ns - simulated.arrival_ns
    shift_ns = round(float(np.median(apart_ns)))
    return ArrivalShift(shift_ns, float(np.abs(apart_ns - shift_ns).max()) / NS_PER_MS)


def rounded(value: float | None) -> float | None:
    """The value with as many digits as files of results have."""
    return None if value is None else round(value, _DIGITS)
