"""What a server did between two times, from the scrapes in between."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sim.server_metrics.scrape import COUNTERS, Histogram, Scrape

_MS = 1e3
_US_PER_S = 1e6
# Fewer requests, or tokens, have no mean that says anything.
_MIN_REQUESTS, _MIN_TOKENS = 5, 50


class ArrivalCount(NamedTuple):
    """How many requests arrived between two scrapes."""

    begin_us: int
    end_us: int
    num: int


@dataclass(frozen=True)
class Window:
    """A server between two scrapes.

    Attributes:
        arrived: requests between each two scrapes in between.
        means: mean of each gauge over the scrapes after the first.
        stalled_s: time between scrapes in which requests ran and no token came.
    """

    first: Scrape
    last: Scrape
    arrived: Sequence[ArrivalCount]
    added: Mapping[str, float]
    histograms: Mapping[str, Histogram]
    means: Mapping[str, float]
    stalled_s: float

    @classmethod
    def between(
        cls,
        first: Scrape,
        last: Scrape,
        arrived: Sequence[ArrivalCount],
        means: Mapping[str, float],
        stalled_s: float,
    ) -> "Window":
        """The window of two scrapes; what was added is their difference."""
        counts = {key: last.values[key] for key in COUNTERS if key in last.values}
        added = {key: count - first.values.get(key, 0.0) for key, count in counts.items()}
        histograms = {
            key: one.since(first.histograms.get(key)) for key, one in last.histograms.items()
        }
        return cls(first, last, arrived, added, histograms, means, stalled_s)

    @property
    def seconds(self) -> float:
        return (self.last.at_us - self.first.at_us) / _US_PER_S

    @property
    def num_arrived(self) -> int:
        return sum(each.num for each in self.arrived)

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens that the prefix cache held; 0: it is not known."""
        asked = self.added.get("queried_tokens") or self.added.get("prompt_tokens", 0.0)
        share = self.added.get("cached_tokens", 0.0) / asked if asked else 0.0
        return min(max(share, 0.0), 1.0)

    def mean_tokens(self, lengths: str, counter: str) -> float | None:
        """Mean length of requests, from a histogram or else a counter; None: none has finished."""
        if (one := self.histograms.get(lengths)) is not None:
            return one.total / one.num if one.num else None
        num = self.added.get("requests", 0.0)
        return self.added.get(counter, 0.0) / num if num else None

    @cached_property
    def figures(self) -> dict[str, float]:
        """Figures by name, those that say something: latencies have enough values.

        `ttft_ms`, `tpot_ms` (time between two tokens), `e2e_ms`, `queue_ms` (before the first
        step), `prefill_ms` (from there to the first token): means. `running`, `waiting`, `kv_pct`:
        means over time.
        """
        found = {}
        for name, key, least in (
            ("ttft_ms", "ttft_s", _MIN_REQUESTS),
            ("tpot_ms", "itl_s", _MIN_TOKENS),
            ("e2e_ms", "e2e_s", _MIN_REQUESTS),
            ("queue_ms", "queue_s", _MIN_REQUESTS),
            ("prefill_ms", "prefill_s", _MIN_REQUESTS),
        ):
            one = self.histograms.get(key)
            if one is not None and one.num >= least:
                found[name] = _MS * one.total / one.num
        for name in ("running", "waiting"):
            found[name] = self.means[name]
        if "kv_usage" in self.means:
            found["kv_pct"] = 100 * self.means["kv_usage"]
        return found


def joined(windows: Sequence[Window]) -> Window:
    """Windows that follow each other as one; gauges have the means of the last."""
    return Window.between(
        windows[0].first,
        windows[-1].last,
        [each for window in windows for each in window.arrived],
        windows[-1].means,
        sum(window.stalled_s for window in windows),
    )


class WindowBuilder:
    """Makes windows of scrapes that come one after another, of one start of one server."""

    def __init__(self, seconds: float) -> None:
        """Windows are at least this long."""
        self._least_us = seconds * _US_PER_S
        self._begin: Scrape | None = None
        self._before: Scrape | None = None
        # Of arrivals that a later scrape takes back, because gauges are older than counters.
        self._owed = 0.0
        self._clear()

    def _clear(self) -> None:
        self._arrived: list[ArrivalCount] = []
        self._sums: dict[str, float] = {}
        self._stalled_us = 0

    def take(self, scrape: Scrape) -> Window | None:
        before, self._before = self._before, scrape
        if before is None or self._begin is None:
            self._begin = scrape
            return None
        self._count(before, scrape)
        if scrape.at_us - self._begin.at_us < self._least_us:
            return None
        num = len(self._arrived)
        begin, self._begin = self._begin, scrape
        means = {key: total / num for key, total in self._sums.items()}
        stalled_s = self._stalled_us / _US_PER_S
        window = Window.between(begin, scrape, self._arrived, means, stalled_s)
        self._clear()
        return window

    def _count(self, before: Scrape, scrape: Scrape) -> None:
        # A request is counted when it ends; until then it runs or waits.
        new = self._owed + sum(
            scrape.values.get(key, 0.0) - before.values.get(key, 0.0)
            for key in ("requests", "running", "waiting")
        )
        num = max(0, round(new))
        self._owed = new - num
        self._arrived.append(ArrivalCount(before.at_us, scrape.at_us, num))
        for key in ("running", "waiting", "kv_usage"):
            if key in scrape.values:
                self._sums[key] = self._sums.get(key, 0.0) + scrape.values[key]
        tokens = [one.histograms["itl_s"].num for one in (before, scrape)]
        runs = min(one.values.get("running", 0.0) for one in (before, scrape))
        if runs > 0 and tokens[0] == tokens[1]:
            self._stalled_us += scrape.at_us - before.at_us
