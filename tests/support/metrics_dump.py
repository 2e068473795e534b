"""Writes what `/metrics` of a simulated server would have said all along, as a dump of scrapes."""

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from sim.api.metrics import EngineLoad, Metrics
from sim.families import FAMILIES
from sim.runlog import NOT_YET_NS, RunLog

_NS_PER_S = 10**9
_NS_PER_US = 1_000
_COUNTED = ("prompt_tokens", "cached_tokens", "output_tokens", "preemptions", "retractions")
START_US = 1_795_772_000_000_000


class DumpWriter:
    """Scrapes of one server through several runs, one after another."""

    def __init__(self, family: str, every_s: float = 2.0) -> None:
        self._load = EngineLoad(0, 0, 0.0)
        self._metrics = Metrics(FAMILIES[family].metric_names(), "tiny", lambda: [self._load])
        self._every_ns = round(every_s * _NS_PER_S)
        self._start_ns = 0
        self.parts: list[bytes] = []

    def add(self, log: RunLog, seconds: float) -> None:
        """The first `seconds` of a run, whose log has `gap_at_ns`."""
        events = sorted(_events(log, self._metrics), key=lambda event: event[0])
        steps, place = log.steps, 0
        pool = steps.free_tokens + steps.evictable_tokens + steps.used_tokens
        for at_ns in range(0, round(seconds * _NS_PER_S), self._every_ns):
            while place < len(events) and events[place][0] <= at_ns:
                events[place][1]()
                place += 1
            row = int(np.searchsorted(steps.t_start_ns, at_ns, side="right")) - 1
            self._load = EngineLoad(0, 0, 0.0)
            if row >= 0 and at_ns <= steps.t_end_ns[row]:
                share = steps.used_tokens[row] / pool[row]
                self._load = EngineLoad(int(steps.running[row]), int(steps.queue[row]), share)
            at_us = START_US + (self._start_ns + at_ns) // _NS_PER_US
            self.parts.append(f"# scraped {at_us}\n".encode() + self._metrics.text())
        self._start_ns += round(seconds * _NS_PER_S)

    def content(self) -> bytes:
        return b"".join(self.parts)


def _events(log: RunLog, metrics: Metrics) -> Iterator[tuple[int, Callable[[], None]]]:
    """What a server counts, and when."""
    requests, gaps = log.requests, log.token_gaps
    for row in range(len(requests.rid)):
        arrival_ns = requests.arrival_ns[row]
        first_ns, finish_ns = requests.first_token_ns[row], requests.finish_ns[row]
        if first_ns != NOT_YET_NS:
            ttft_s = (first_ns - arrival_ns) / _NS_PER_S
            yield int(first_ns), partial(metrics.first_token, ttft_s)
        if finish_ns != NOT_YET_NS:
            counts = {name: int(getattr(requests, name)[row]) for name in _COUNTED}
            record: Any = SimpleNamespace(**counts)
            yield (
                int(finish_ns),
                partial(metrics.over, record, (finish_ns - arrival_ns) / _NS_PER_S),
            )
    assert log.gap_at_ns is not None
    for at_ns, gap_ns, count in zip(log.gap_at_ns, gaps.gap_ns, gaps.count, strict=True):
        # As many tokens at once, each as long after the one before.
        yield int(at_ns), partial(metrics.tokens, int(count), count * gap_ns / _NS_PER_S)
