"""Changes that are no drift: other traffic, which the twin follows, and another server."""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sim.server_metrics.scrape import Scrape
from sim.server_metrics.window import Window, joined
from sim.tables.table import number

# The traffic of this many windows is compared with that of as many windows before them.
_WINDOWS = 6
_FACTOR = 1.5
_HIT_POINTS = 15.0
# A count has changed if it differs by more than this many standard deviations of its chance.
_DEVIATIONS = 4.0
# At most this many of the values that changed at once are named.
_MAX_SHOWN = 4


class TrafficChanges:
    """Says when the traffic is not what it was."""

    def __init__(self) -> None:
        self._recent: deque[Window] = deque(maxlen=_WINDOWS)
        self._before: dict[str, float] = {}
        self._num_before = 0

    def take(self, window: Window) -> str:
        """What changed until this window; empty: nothing."""
        self._recent.append(window)
        if len(self._recent) < _WINDOWS:
            return ""
        span = joined(list(self._recent))
        now = _traffic(span)
        if not self._before:
            self._before, self._num_before = now, span.num_arrived
        changed = [
            _UNITS[name].format(number(self._before[name]), number(now[name]))
            for name in now
            if name in self._before and self._is_changed(name, now, span.num_arrived)
        ]
        if changed:
            self._before, self._num_before = now, span.num_arrived
        return f"traffic changed: {', '.join(changed)}" if changed else ""

    def _bursts(self) -> float:
        """Variance over mean of the arrivals of a window: 1 or less if none comes with others."""
        counts = np.array([window.num_arrived for window in self._recent], dtype=np.float64)
        return max(1.0, float(counts.var() / max(float(counts.mean()), 1e-9)))

    def _is_changed(self, name: str, now: Mapping[str, float], num: int) -> bool:
        before, after = self._before[name], now[name]
        if name == "hit_pct":
            return abs(after - before) > _HIT_POINTS
        if name == "rate_rps":
            chance = _DEVIATIONS * math.sqrt(self._bursts() * max(num, self._num_before, 1))
            if abs(num - self._num_before) < chance:
                return False
        low, high = sorted((before, after))
        return high > _FACTOR * low


_UNITS = {
    "rate_rps": "{} → {} requests/s",
    "prompt_tokens": "prompts of {} → {} tokens",
    "output_tokens": "outputs of {} → {} tokens",
    "hit_pct": "cache hits {} → {} %",
}
# A change of lengths is one of several requests.
_MIN_REQUESTS = 20


def _traffic(span: Window) -> dict[str, float]:
    found = {"rate_rps": span.num_arrived / span.seconds}
    if span.added.get("requests", 0.0) >= _MIN_REQUESTS:
        for name, lengths, counter in (
            ("prompt_tokens", "prompt_lengths", "prompt_tokens"),
            ("output_tokens", "output_lengths", "generation_tokens"),
        ):
            if (mean := span.mean_tokens(lengths, counter)) is not None:
                found[name] = mean
        found["hit_pct"] = 100 * span.hit_rate
    return found


def server_changes(before: Scrape, now: Scrape) -> Iterator[str]:
    """What is different about the server since the scrape before."""
    if now.is_restarted(before):
        yield "the server was restarted: its counters began anew"
    # An answer that lacks all settings does not say that they changed.
    is_part = bool(before.info) and not now.info
    labels = "" if is_part else differences(before.info, now.info, "none")
    pools = [one.values.get("pool_tokens") for one in (before, now)]
    if pools[0] != pools[1] and before.info == now.info:
        labels = f"KV pool {_tokens(pools)}"
    if labels:
        yield f"the server's settings changed: {labels}"


def differences(before: Mapping[str, object], now: Mapping[str, object], missing: str) -> str:
    """The first few values that changed, as `name 1 → 2`; `missing` stands for one without."""
    pairs = {
        name: (before.get(name, missing), now.get(name, missing))
        for name in sorted({*before, *now})
    }
    changed = [f"{name} {was} → {is_now}" for name, (was, is_now) in pairs.items() if was != is_now]
    return ", ".join(changed[:_MAX_SHOWN])


def _tokens(pools: Sequence[float | None]) -> str:
    return " → ".join("not known" if pool is None else f"{pool:,.0f} tokens" for pool in pools)
