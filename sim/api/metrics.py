"""Prometheus metrics of a server, under the names of its family's engine."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from sim.engine.core import EngineCore
from sim.engine.records import RequestRecord


class EngineLoad(NamedTuple):
    """What an engine has to do now.

    Attributes:
        running, waiting: requests.
        kv_usage: share of the KV pool that is in use.
    """

    running: int
    waiting: int
    kv_usage: float


def load_of(engine: EngineCore) -> EngineLoad:
    """The load of an engine; to be called in the thread that drives it."""
    kv = engine.kv
    used = 1 - (kv.free_tokens + kv.evictable_tokens) / kv.pool_tokens
    scheduler = engine.scheduler
    # An engine's own number says whether the next decision may launch a step: on prefill and decode
    # servers it may be 0 while requests wait, or 1 while none does.
    waiting = scheduler.num_waiting + (scheduler.chunked_rid is not None)
    return EngineLoad(scheduler.num_running, waiting, used)


_GAUGES = {
    "running": "requests that run",
    "waiting": "requests that wait",
    "kv_usage": "share of the KV pool that is in use",
}
_COUNTERS = {
    "prompt_tokens": "prompt tokens of requests that have ended",
    "cached_tokens": "those that the prefix cache held",
    "generation_tokens": "generated tokens of requests that have ended",
    "requests": "requests that have finished",
    "preemptions": "times that a request lost its KV and began again",
}
_HISTOGRAMS = {
    "ttft_s": "time to first token",
    "itl_s": "time between two tokens",
    "e2e_s": "time from a request's arrival to its end",
}
KEYS = (*_GAUGES, *_COUNTERS, *_HISTOGRAMS)
_SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 640,
)  # fmt: skip


class Metrics:
    """What `/metrics` shows."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(
        self, names: Mapping[str, str], model: str, loads: Callable[[], Sequence[EngineLoad]]
    ) -> None:
        """Make the metrics, for the label `model_name`.

        `names` are the engine's own, by the names used here (`KEYS`). `loads` gives the loads of
        the engines, one for each rank of each replica.
        """
        names = {key: f"servetwin:{key}" for key in KEYS} | dict(names)
        self._loads, self._model = loads, model
        self._registry = registry = CollectorRegistry()
        self._gauges = {
            key: Gauge(names[key], about, ["model_name", "engine"], registry=registry)
            for key, about in _GAUGES.items()
        }
        self._counters = {
            key: Counter(names[key], about, ["model_name"], registry=registry).labels(model)
            for key, about in _COUNTERS.items()
        }
        self._histograms = {
            key: Histogram(
                names[key], about, ["model_name"], buckets=_SECONDS, registry=registry
            ).labels(model)
            for key, about in _HISTOGRAMS.items()
        }

    def first_token(self, ttft_s: float) -> None:
        """A request got its first token, this long after its arrival."""
        self._histograms["ttft_s"].observe(ttft_s)

    def tokens(self, num_tokens: int, since_s: float) -> None:
        """A request got further tokens, this long after the one before."""
        for _ in range(num_tokens):
            self._histograms["itl_s"].observe(since_s / num_tokens)

    def over(self, record: RequestRecord, e2e_s: float | None) -> None:
        """A request has ended; `e2e_s` is None if it has not finished."""
        counted = {
            "prompt_tokens": record.prompt_tokens,
            "cached_tokens": record.cached_tokens,
            "generation_tokens": record.output_tokens,
            "preemptions": record.preemptions + record.retractions,
        }
        for key, number in counted.items():
            self._counters[key].inc(number)
        if e2e_s is not None:
            self._counters["requests"].inc()
            self._histograms["e2e_s"].observe(e2e_s)

    def text(self) -> bytes:
        for number, load in enumerate(self._loads()):
            for key, value in load._asdict().items():
                self._gauges[key].labels(self._model, str(number)).set(value)
        return generate_latest(self._registry)
