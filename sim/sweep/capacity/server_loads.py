"""Estimates from step times how many servers some traffic keeps busy."""

from collections.abc import Callable
from typing import NamedTuple

from sim.core.errors import InputError
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.latency.features import equal_decodes, equal_prefills
from sim.latency.model import LatencyModel, each_latency
from sim.scenario.build import BuiltScenario, build
from sim.sweep.capacity.candidates import REPLICAS, Candidate
from sim.sweep.plan import Plan
from sim.workload.kinds.stats import WorkloadStats, workload_stats
from sim.workload.traces.read import TraceReader

# New tokens of the prefill step whose time is taken: enough to keep any GPU busy.
_STEP_TOKENS = 8192
# Prefill steps of `n` ranks partly coincide: together they hold up the others about as long as
# `n ** 0.5` ranks would one after the other. That is what searches found.
_WAITING = 0.5
# How often the range of the number of servers is halved, and how far up it goes at first.
_NUM_HALVINGS, _MOST = 12, 20.0


class BusyServers(NamedTuple):
    """How many servers some traffic keeps busy; zeros if there is no estimate.

    Attributes:
        prefill: servers that only prefill.
        decode: servers that only decode.
        both: servers that do both, whose decode steps wait for prefill steps.
    """

    prefill: float
    decode: float
    both: float


_UNKNOWN = BusyServers(0.0, 0.0, 0.0)


class ServerLoads:
    """Estimates from step times how many servers a scenario's traffic keeps busy.

    A search for deployments begins with these numbers, so they need not be exact.

    Args:
        plan: makes the scenario of a candidate's settings.
        factor: by which the rate of the workload is multiplied.
        read_trace: reads the workload's trace, if it has one.
    """

    def __init__(self, plan: Plan, factor: float, read_trace: TraceReader) -> None:
        self._plan = plan
        self._factor = factor
        self._read_trace = read_trace
        self._known: dict[int, BusyServers] = {}
        self._stats: WorkloadStats | None = None

    def of(self, candidate: Candidate) -> BusyServers:
        """How many servers like a candidate's the traffic keeps busy.

        Zeros if there is no estimate: the rate is not known beforehand; the servers cannot be
        built, for example because the model does not fit (their trial says why); or they have
        several micro-batches or drafts.
        """
        if candidate.number not in self._known:
            self._known[candidate.number] = self._loads(candidate)
        return self._known[candidate.number]

    def _loads(self, candidate: Candidate) -> BusyServers:
        varied = self._plan.vary({**candidate.settings, REPLICAS: 1})
        try:
            built = build(varied, read_trace=self._read_trace)
        except InputError:
            return _UNKNOWN
        if self._stats is None:
            # All candidates have the same traffic.
            self._stats = workload_stats(built.workload)
        stats, rate = self._stats, self._stats.rate_rps
        if rate is None:
            return _UNKNOWN
        if built.scheduler.micro_batches > 1 or varied.scenario.scheduler.drafts is not None:
            # The time of one step does not say how long a token takes.
            return _UNKNOWN
        latency, ranks = next(each_latency(built.latencies)), candidate.degrees.get("dp", 1)
        busy = rate * self._factor / ranks / NS_PER_S
        prefill = busy * _prefill_ns(stats, latency)

        def decode(share: float) -> float:
            return busy * _decode_ns(stats, built, latency, share)

        return BusyServers(prefill, decode(1.0), _both(prefill, decode, ranks))


def _both(prefill: float, decode: Callable[[float], float], ranks: int) -> float:
    """The number of servers that do both: the smallest for which all of their time is enough.

    Of `n` servers, each rank prefills for `prefill / n` of its time, and the others wait. A token
    then may take only the rest of its limit, so fewer rows can share a decode step. `decode` says
    how many servers decode with such a share of the limit.
    """
    low, high = prefill, _MOST * (prefill + decode(1.0))
    for _ in range(_NUM_HALVINGS):
        number = (low + high) / 2
        free = (1 - prefill / number) ** ranks**_WAITING
        if decode(free) <= number * free:
            high = number
        else:
            low = number
    return high


def _prefill_ns(stats: WorkloadStats, latency: LatencyModel) -> float:
    """Time of a prompt of mean length, if a cache without limits has its prefix."""
    prompt = round(stats.input_tokens.mean)
    new = max(1, round(prompt * (1 - stats.token_hit_pct / 100)))
    cached, rows = prompt - new, max(1, _STEP_TOKENS // new)
    return latency.step_ns(equal_prefills(rows, cached, new)).device_ns / rows


def _decode_ns(
    stats: WorkloadStats, built: BuiltScenario, latency: LatencyModel, share: float
) -> float:
    """Time of an output of mean length: its share of the steps that many rows have together.

    The rows are as many as the memory and that share of the SLO's limit on TPOT allow.
    """
    limit_ms = built.loaded.scenario.slo.tpot_ms
    outputs = stats.output_tokens.mean
    tokens_per_row = stats.input_tokens.mean + outputs
    rows_in_pool = int(built.scheduler.pool_tokens // tokens_per_row)
    most = max(1, min(rows_in_pool, built.scheduler.max_rows))
    context = round(stats.input_tokens.mean + outputs / 2)

    def step_ns(rows: int) -> float:
        return float(latency.step_ns(equal_decodes(rows, context)).device_ns)

    low, high = 1, most
    while limit_ms is not None and low < high:
        rows = (low + high + 1) // 2
        if step_ns(rows) <= share * limit_ms * NS_PER_MS:
            low = rows
        else:
            high = rows - 1
    rows = most if limit_ms is None else low
    return outputs * step_ns(rows) / rows
