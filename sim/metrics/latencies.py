"""Each request's latencies, computed from its time stamps; means, quantiles and limits of them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sim.core.arrays import Bools, Float64, Int64, Narrow
from sim.core.request import Status
from sim.core.units import NS_PER_MS
from sim.runlog import NOT_YET_NS, RequestColumns


class RequestLatencies(NamedTuple):
    """Latencies in milliseconds, one for each request in the log's order; NaN where undefined.

    Attributes:
        ttft_ms: first token - arrival.
        tpot_ms: (e2e - ttft) / (output tokens - 1), for finished requests of two tokens or more.
        e2e_latency_ms: finish - arrival, for finished requests.
        queue_time_ms: time at which the request's first batch was decided - arrival.
    """

    ttft_ms: Float64
    tpot_ms: Float64
    e2e_latency_ms: Float64
    queue_time_ms: Float64


def finished_mask(requests: RequestColumns) -> Bools:
    """True where a request finished. Latency statistics are over these requests only."""
    return status_mask(requests, Status.FINISHED)


def status_mask(requests: RequestColumns, status: Status) -> Bools:
    """True where a request has this status; shape [num_requests]."""
    equal = map(status.value.__eq__, requests.status)
    return np.fromiter(equal, dtype=np.bool_, count=len(requests.status))


def request_latencies(requests: RequestColumns) -> RequestLatencies:
    finished = finished_mask(requests)
    never = np.full(len(finished), NOT_YET_NS, dtype=np.int64)
    finish_ns = np.where(finished, requests.finish_ns, never)
    num_gaps = np.where(requests.output_tokens > 1, requests.output_tokens - 1, 0)
    decode_ms = _elapsed_ms(requests.first_token_ns, finish_ns)
    with np.errstate(invalid="ignore", divide="ignore"):
        tpot_ms = np.where(num_gaps > 0, decode_ms / num_gaps, np.nan)
    return RequestLatencies(
        ttft_ms=_elapsed_ms(requests.arrival_ns, requests.first_token_ns),
        tpot_ms=tpot_ms,
        e2e_latency_ms=_elapsed_ms(requests.arrival_ns, finish_ns),
        queue_time_ms=_elapsed_ms(requests.arrival_ns, requests.scheduled_ns),
    )


def _elapsed_ms(start_ns: Int64, end_ns: Int64) -> Float64:
    happened = (start_ns != NOT_YET_NS) & (end_ns != NOT_YET_NS)
    return np.where(happened, (end_ns - start_ns) / NS_PER_MS, np.nan)


_PERCENTILES = {"median": 50, "p90": 90, "p95": 95, "p99": 99}
STATISTICS = ("mean", *_PERCENTILES, "std", "max")
# Values that are summed at once: with ten million of them, each array takes 80 MB.
_PIECE = 1 << 18


def statistics(
    values: Float64 | Narrow, counts: Narrow | None = None, unit: int = 1
) -> dict[str, float | None]:
    """The mean, percentiles, standard deviation (of the population) and maximum of samples.

    Values are in any order; `values[i]` stands for `counts[i]` equal samples. Results are divided
    by `unit`: 1,000,000 for values in ns and results in ms. There is a value for each name in
    `STATISTICS`; all are None if there is no sample.
    """
    samples = _Samples(values, counts, unit)
    number = samples.number
    if number == 0:
        return dict.fromkeys(STATISTICS)
    mean = samples.sum_of(lambda value: value) / number
    variance = samples.sum_of(lambda value: (value - mean) ** 2) / number
    return {
        "mean": mean,
        **dict(zip(_PERCENTILES, samples.quantiles(tuple(_PERCENTILES.values())), strict=True)),
        "std": variance**0.5,
        "max": samples.at(np.array([number - 1]))[0].item(),
    }


def quantiles(
    values: Float64, percents: Sequence[float], counts: Int64 | None = None
) -> list[float]:
    """The quantiles of samples at percents from 0 to 100; empty if there is no sample.

    Like numpy's percentiles, they interpolate linearly between neighbouring samples. NaN is
    ignored. `counts` are as in `statistics`.
    """
    known = ~np.isnan(values)
    samples = _Samples(values[known], None if counts is None else counts[known])
    return samples.quantiles(percents) if samples.number else []


class _Samples:
    """Samples in ascending order, piece by piece."""

    def __init__(self, values: Float64 | Narrow, counts: Narrow | None, unit: int = 1) -> None:
        self._counts, self._unit = counts, unit
        self._values = np.sort(values) if counts is None else values
        self._order = None if counts is None else np.argsort(values, kind="stable")
        # Samples up to the end of each piece.
        ends = np.cumsum([int(weights.sum()) for _, weights in self._pieces()], dtype=np.int64)
        self._ends: Int64 = ends
        self.number = int(ends[-1]) if len(ends) else 0

    def _pieces(self) -> Iterator[tuple[Float64, Int64]]:
        """Values, and how often each occurs."""
        yield from map(self._piece, range(-(-len(self._values) // _PIECE)))

    def _piece(self, number: int) -> tuple[Float64, Int64]:
        part = slice(number * _PIECE, (number + 1) * _PIECE)
        if self._order is None or self._counts is None:
            values = self._values[part].astype(np.float64)
            return values / self._unit, np.ones(len(values), dtype=np.int64)
        rows = self._order[part]
        return self._values[rows].astype(np.float64) / self._unit, self._counts[rows].astype(
            np.int64
        )

    def sum_of(self, function: Callable[[Float64], Float64]) -> float:
        return math.fsum(
            float((function(values) * weights).sum()) for values, weights in self._pieces()
        )

    def at(self, ranks: Int64) -> Float64:
        """The samples of these ranks, counted from 0."""
        found = np.empty(len(ranks), dtype=np.float64)
        piece_of = np.searchsorted(self._ends, ranks, side="right")
        for number in sorted(set(piece_of.tolist())):
            values, weights = self._piece(number)
            before = int(self._ends[number - 1]) if number else 0
            mine = piece_of == number
            places = np.searchsorted(weights.cumsum(), ranks[mine] - before, side="right")
            found[mine] = values[places]
        return found

    def quantiles(self, percents: Sequence[float]) -> list[float]:
        """See the function of this name; there must be a sample."""
        last = self.number - 1
        ranks = last * (np.array(percents) / 100)
        below = ranks.astype(np.int64)
        low, high = self.at(below), self.at(np.minimum(below + 1, last))
        found: list[float] = (low + (high - low) * (ranks - below)).tolist()
        return found


DEFAULT_PERCENTILE = 99
_MEDIAN = 50


class Slo(NamedTuple):
    """Limits of a request's latencies; None: no limit. A request is good if it meets them all.

    A request with one output token has no TPOT, so it meets every `tpot_ms`. The `percentile` of a
    latency is shown beside its limit.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_latency_ms: float | None = None
    percentile: int = DEFAULT_PERCENTILE

    def limits_ms(self) -> dict[str, float]:
        parts = {"ttft": self.ttft_ms, "tpot": self.tpot_ms, "e2e_latency": self.e2e_latency_ms}
        return {name: limit for name, limit in parts.items() if limit is not None}


def slo_limits(summary: Mapping[str, Any]) -> dict[str, float]:
    """The limits of a run's SLO by the metric that is held against each: `p99_ttft_ms`."""
    percentile = summary.get("slo_percentile", DEFAULT_PERCENTILE)
    statistic = "median" if percentile == _MEDIAN else f"p{percentile}"
    limits = summary.get("goodput_slos_ms") or {}
    return {f"{statistic}_{name}_ms": limit for name, limit in limits.items()}
