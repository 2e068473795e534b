"""Estimates from step times how many servers some traffic keeps busy."""

from collections.abc import Callable
from typing import NamedTuple

from sim.core.errors import InputError
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.latency.features import equal_decodes, equal_prefills
from sim.latency.model import LatencyModel, each_latency
from sim.scenario.build import build
from sim.sweep.capacity.candidates import REPLICAS, Candidate
from sim.sweep.plan import Plan, Settings, canonical
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


class _Timed(NamedTuple):
    """Servers of a kind, as far as their estimate needs them."""

    latency: LatencyModel
    pool_tokens: int
    max_rows: int
    tpot_limit_ms: float | None


class ServerLoads:
    """Estimates from step times how many servers a scenario's traffic keeps busy.

    A search for deployments begins with these numbers, so they need not be exact.

    Args:
        plan: makes the scenario of a candidate's settings.
        factor: by which the rate of the workload is multiplied.
        read_trace: reads the workload's trace, if it has one.
        hit_pct: for the number of tokens in all caches, the share of the prompts' tokens that
            they find, in percent; None: all that can be found.
    """

    def __init__(
        self,
        plan: Plan,
        factor: float,
        read_trace: TraceReader,
        hit_pct: Callable[[float], float] | None = None,
    ) -> None:
        self._plan = plan
        self._factor = factor
        self._read_trace = read_trace
        self._hit_pct = hit_pct
        self._known: dict[int, BusyServers] = {}
        self._timed: dict[str, _Timed | None] = {}
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
        # Neither memory nor the router changes the time of a step without loads.
        settings = {
            key: value for key, value in candidate.bare_settings.items() if not _is_router(key)
        }
        key = canonical(settings)
        if key not in self._timed:
            self._timed[key] = self._build(settings)
        timed, stats = self._timed[key], self._stats
        if timed is None or stats is None or stats.rate_rps is None:
            return _UNKNOWN
        ranks = candidate.degrees.get("dp", 1)
        busy = stats.rate_rps * self._factor / ranks / NS_PER_S
        held = _held(candidate, timed.pool_tokens * ranks)

        def prefill(num_servers: float | None) -> float:
            hit_pct = stats.token_hit_pct
            if self._hit_pct is not None and held is not None and num_servers is not None:
                hit_pct = self._hit_pct(held(num_servers))
            return busy * _prefill_ns(stats, timed.latency, hit_pct)

        def decode(share: float) -> float:
            return busy * _decode_ns(stats, timed, share)

        return BusyServers(prefill(None), decode(1.0), _both(prefill, decode, ranks))

    def _build(self, settings: Settings) -> _Timed | None:
        """Servers with these settings; None: there is no estimate of them."""
        varied = self._plan.vary({**settings, REPLICAS: 1})
        try:
            built = build(varied, read_trace=self._read_trace)
        except InputError:
            return None
        if self._stats is None:
            # All candidates have the same traffic.
            self._stats = workload_stats(built.workload)
        if built.scheduler.micro_batches > 1 or varied.scenario.scheduler.drafts is not None:
            # The time of one step does not say how long a token takes.
            return None
        return _Timed(
            next(each_latency(built.latencies)),
            built.scheduler.pool_tokens,
            built.scheduler.max_rows,
            varied.scenario.slo.tpot_ms,
        )


def _is_router(key: str) -> bool:
    return key.partition(".")[0] == "router"


def _held(candidate: Candidate, pool_tokens: int) -> Callable[[float], float] | None:
    """For a number of servers, the tokens that they keep, on GPUs and beside; None: not known."""
    memory, token_bytes = candidate.memory, candidate.token_bytes
    if memory is None or not token_bytes:
        return None
    return lambda num_servers: (
        num_servers * pool_tokens + memory.num_bytes(num_servers) / token_bytes
    )


def _both(
    prefill: Callable[[float | None], float], decode: Callable[[float], float], ranks: int
) -> float:
    """The number of servers that do both: the smallest for which all of their time is enough.

    Of `n` servers, each rank prefills for `prefill(n) / n` of its time, and the others wait. More
    servers keep more KV, so together they prefill less. A token then may take only the rest of its
    limit, so fewer rows can share a decode step. `decode` says how many servers decode with such a
    share of the limit.
    """
    low, high = prefill(None), _MOST * (prefill(0.0) + decode(1.0))
    for _ in range(_NUM_HALVINGS):
        number = (low + high) / 2
        free = (
            (1 - prefill(number) / number) ** ranks**_WAITING if prefill(number) < number else 0.0
        )
        if free and decode(free) <= number * free:
            high = number
        else:
            low = number
    return high


def _prefill_ns(stats: WorkloadStats, latency: LatencyModel, hit_pct: float) -> float:
    """Time of a prompt of mean length, of which a cache has `hit_pct` percent."""
    prompt = round(stats.input_tokens.mean)
    new = max(1, round(prompt * (1 - hit_pct / 100)))
    cached, rows = prompt - new, max(1, _STEP_TOKENS // new)
    return latency.step_ns(equal_prefills(rows, cached, new)).device_ns / rows


def _decode_ns(stats: WorkloadStats, timed: _Timed, share: float) -> float:
    """Time of an output of mean length: its share of the steps that many rows have together.

    The rows are as many as the memory and that share of the SLO's limit on TPOT allow.
    """
    limit_ms = timed.tpot_limit_ms
    outputs = stats.output_tokens.mean
    tokens_per_row = stats.input_tokens.mean + outputs
    rows_in_pool = int(timed.pool_tokens // tokens_per_row)
    most = max(1, min(rows_in_pool, timed.max_rows))
    context = round(stats.input_tokens.mean + outputs / 2)

    def step_ns(rows: int) -> float:
        return float(timed.latency.step_ns(equal_decodes(rows, context)).device_ns)

    low, high = 1, most
    while limit_ms is not None and low < high:
        rows = (low + high + 1) // 2
        if step_ns(rows) <= share * limit_ms * NS_PER_MS:
            low = rows
        else:
            high = rows - 1
    rows = most if limit_ms is None else low
    return outputs * step_ns(rows) / rows
