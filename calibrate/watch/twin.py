"""Predicts a window's figures: simulates the traffic that the server had until then."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calibrate.watch.traffic import Lengths, num_before, span_traffic
from sim.commands.running.simulate import simulate_built
from sim.des.run import RunOptions
from sim.runlog import RunLog
from sim.scenario.build import BuiltScenario
from sim.server_metrics.window import Window

_NS_PER_MS = 1e6
_NS_PER_US = 1_000
# A simulation of more requests would take longer than the traffic that it simulates.
_MAX_REQUESTS = 20_000
# Before a window, this many times the mean latency is simulated, too, so that the twin is as busy.
_LATENCIES_BEFORE = 3

Figures = dict[str, float]


class Prediction(NamedTuple):
    """What a window should be like.

    Attributes:
        draws: its figures by each draw of the traffic, as in `Window.figures`.
        span_s: how long the simulations were until the window's end.
    """

    draws: Sequence[Figures]
    span_s: float

    def values(self, name: str) -> list[float]:
        """One figure by each draw that has it."""
        return [figures[name] for figures in self.draws if name in figures]


class WindowTwin:
    """Simulates windows of a server's traffic with the scenario's servers."""

    def __init__(self, built: BuiltScenario, *, num_draws: int, seed: int) -> None:
        """Make a twin that simulates each window with `num_draws` draws of its traffic.

        Raises:
            InputError: the scenario is one that cannot be simulated window by window.
        """
        loaded = built.loaded
        if built.pools:
            raise loaded.error(("pools",), "calibrate watch knows servers that do both parts only")
        if loaded.scenario.autoscale is not None:
            raise loaded.error(("autoscale",), "does not go with calibrate watch")
        if loaded.scenario.latency.kind == "recorded":
            raise loaded.error(("latency",), "recorded steps are those of one run only")
        self._built = built
        self._own = Lengths.of(built.workload)
        self._num_draws, self._seed = num_draws, seed

    @property
    def pool_tokens(self) -> int:
        """KV tokens of one server."""
        return self._built.scheduler.pool_tokens

    def predict(self, windows: Sequence[Window], number: int) -> Prediction:
        """The last of these windows, which follow each other; `number` is its place in all.

        There are no draws if it has too many requests.
        """
        windows = self._span(windows)
        num = sum(window.num_arrived for window in windows) + sum(num_before(windows[0]))
        if num > _MAX_REQUESTS:
            return Prediction([], 0.0)
        draws = [
            self._predict(windows, np.random.default_rng([self._seed, number, draw]))
            for draw in range(self._num_draws)
        ]
        return Prediction(draws, sum(window.seconds for window in windows))

    @staticmethod
    def _span(windows: Sequence[Window]) -> Sequence[Window]:
        """As many of the last windows as are simulated."""
        latency_ms = windows[-1].figures.get("e2e_ms", 0.0)
        seconds, num, first = 0.0, windows[-1].num_arrived, len(windows) - 1
        while first > 0:
            before = windows[first - 1]
            num += before.num_arrived
            if num > _MAX_REQUESTS:
                break
            first -= 1
            seconds += before.seconds
            if seconds * 1e3 >= _LATENCIES_BEFORE * latency_ms:
                break
        return windows[first:]

    def _predict(self, windows: Sequence[Window], rng: np.random.Generator) -> Figures:
        workload = span_traffic(windows, self._own, rng)
        log = simulate_built(replace(self._built, workload=workload), RunOptions(timed_gaps=True))
        start_us = windows[0].first.at_us
        bounds_ns = [
            (scrape.at_us - start_us) * _NS_PER_US
            for scrape in (windows[-1].first, windows[-1].last)
        ]
        return _figures(log, bounds_ns[0], bounds_ns[1])


def _figures(log: RunLog, begin_ns: int, end_ns: int) -> Figures:
    """As `Window.figures`, of what happened from one time to another."""
    requests, steps = log.requests, log.steps
    found: Figures = {}
    for name, until, since in (
        ("ttft_ms", requests.first_token_ns, requests.arrival_ns),
        ("e2e_ms", requests.finish_ns, requests.arrival_ns),
    ):
        inside = (until >= begin_ns) & (until < end_ns)
        if inside.any():
            found[name] = float((until - since)[inside].mean()) / _NS_PER_MS
    if log.gap_at_ns is not None:
        inside = (log.gap_at_ns >= begin_ns) & (log.gap_at_ns < end_ns)
        gaps, counts = log.token_gaps.gap_ns[inside], log.token_gaps.count[inside]
        if counts.sum():
            found["tpot_ms"] = float(gaps @ counts / counts.sum()) / _NS_PER_MS
    pool = np.maximum(steps.free_tokens + steps.evictable_tokens + steps.used_tokens, 1)
    inside_ns = np.minimum(steps.t_end_ns, end_ns) - np.maximum(steps.t_start_ns, begin_ns)
    shares = np.clip(inside_ns, 0, None) / (end_ns - begin_ns)
    num_servers = len(np.unique(steps.replica)) or 1
    found["running"] = float(shares @ steps.running)
    found["waiting"] = float(shares @ steps.queue)
    found["kv_pct"] = 100 * float(shares @ (steps.used_tokens / pool)) / num_servers
    return found
