"""Decides whether a figure has drifted from what the twin predicts: a CUSUM of its log ratio.

The twin is never quite right, so the first windows teach a judge its usual error: the middle and
the spread of ln(measured / predicted). From then on each window has a score, the distance from that
middle in spreads. `_SLACK` is taken from each score, and what is left adds up, above and below
apart, never below 0. From `_LIMIT` on the figure drifts. One window alone cannot do it, whatever it
says, because a score counts `_CLIP` at most.

In 40,000 windows of made-up errors, 9 days of 20 s, there was no alarm where they were normal, 6
where they had heavy tails (Student's t with 4 degrees of freedom), and 2 where each hung together
with the one before (correlation 0.3).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calibrate.watch.twin import Prediction

_SLACK, _LIMIT, _CLIP = 1.25, 6.0, 4.5
# A drift is over after this many windows in a row with a smaller score.
_QUIET_WINDOWS, QUIET_SCORE = 3, 2.0
# The usual error is learned from this many windows at most: later ones may have drifted.
_MOST_LEARNED = 60
# Nor is it learned from windows while a sum is this high.
_CALM = 2.5
# A spread is a standard deviation, taken from the deviation that 80 % of the learned windows do not
# pass: of normal errors that is 1.2816 of them. n windows understate it, so it counts 1 + 5 / n
# times.
_SHARE, _SPREADS, _FEW = 0.8, 1.2816, 5.0
# Steps of the twin may be this much too fast or slow. Where requests wait, the error grows for as
# long as a simulation lasts.
_STEP_ERROR = 0.05
_BUSY_KV_PCT = 90.0
# With a share h of cached tokens, requests that share all of these take 1 - h times the KV of those
# that share none. Half of the way, in logarithms, is a spread; h counts 0.95 at most.
_SHARED, _MOST_HITS = 0.5, 0.95


class Rule(NamedTuple):
    """How a figure is judged.

    Attributes:
        least_spread: of its log ratio, whatever was learned. A drift by less is not worth a word.
        load_spread: what is added to it when the load is e times as high, or low, as usual.
        offset: is added to measured and predicted, so that none is 0.
    """

    least_spread: float
    load_spread: float
    offset: float = 0.0


# `kv_share_pct` is the part of the KV pool that a running request has.
RULES: Mapping[str, Rule] = {
    "ttft_ms": Rule(0.08, 0.2),
    "tpot_ms": Rule(0.03, 0.08),
    "waiting": Rule(0.3, 0.5, 1.0),
    "kv_share_pct": Rule(0.08, 0.08),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one window says of one figure.

    Attributes:
        measured: the figure.
        predicted: what the twin says; once its usual error is known, times that.
        low, high: three spreads around it; None: the usual error is not known yet.
        score: how many spreads the window is above the prediction; 0 until it is known.
        drifts: 1 for too high, -1 for too low, 0 for no drift.
    """

    measured: float
    predicted: float
    low: float | None = None
    high: float | None = None
    score: float = 0.0
    drifts: int = 0

    @property
    def ratio(self) -> float:
        return self.measured / self.predicted if self.predicted else math.inf


class Judge:
    """Judges one figure, window by window, in memory that does not grow."""

    def __init__(self, rule: Rule, num_learned: int) -> None:
        """Learn the usual error from `num_learned` windows."""
        self._rule, self._num_learned = rule, num_learned
        self._learned: list[float] = []
        # Of the learned log ratios: their middle and spread; and the usual log load.
        self._mean = self._own = self._load = 0.0
        self._above = self._below = 0.0
        self._drifts, self._num_quiet = 0, 0

    @property
    def usual_ratio(self) -> float | None:
        """Measured over predicted, as it usually is; None: not known yet."""
        return math.exp(self._mean) if len(self._learned) >= self._num_learned else None

    def take(
        self, measured: float, values: list[float], unknown_spread: float, load: float
    ) -> Verdict:
        """Judge a window.

        Args:
            measured: the figure.
            values: what each draw of the twin says.
            unknown_spread: of the log ratio, because of what no metric says.
            load: how much the server has to do, in units that do not matter.
        """
        offset = self._rule.offset
        logs = np.log(np.maximum(np.array(values) + offset, 1e-9))
        predicted = float(np.exp(logs.mean()))
        ratio = math.log(max(measured + offset, 1e-9)) - float(logs.mean())
        if len(self._learned) < self._num_learned:
            self._learn(ratio, load)
            return Verdict(measured, predicted - offset)
        spread = self._spread(float(logs.std()), unknown_spread, load)
        score = (ratio - self._mean) / spread
        self._add(score)
        is_calm = not self._drifts and max(self._above, self._below) < _CALM
        if is_calm and len(self._learned) < _MOST_LEARNED:
            self._learn(ratio, load)
        middle = predicted * math.exp(self._mean)
        low, high = (middle * math.exp(side * 3 * spread) - offset for side in (-1, 1))
        return Verdict(measured, middle - offset, max(low, 0.0), high, score, self._drifts)

    def _learn(self, ratio: float, load: float) -> None:
        self._learned.append(ratio)
        num = len(self._learned)
        # Not mean and standard deviation: a server that warms up has a window of its own.
        self._mean = float(np.median(self._learned))
        deviations = np.abs(np.array(self._learned) - self._mean)
        self._own = float(np.quantile(deviations, _SHARE)) / _SPREADS * (1 + _FEW / num)
        self._load += (math.log1p(load) - self._load) / num

    def _spread(self, of_draws: float, unknown_spread: float, load: float) -> float:
        rule = self._rule
        own = max(rule.least_spread, self._own)
        # The usual error of few windows is not certain either.
        of_mean = own / math.sqrt(len(self._learned))
        of_load = rule.load_spread * abs(math.log1p(load) - self._load)
        return math.hypot(own, of_mean, of_draws, unknown_spread, of_load)

    def _add(self, score: float) -> None:
        clipped = max(-_CLIP, min(_CLIP, score))
        self._above = max(0.0, self._above + clipped - _SLACK)
        self._below = max(0.0, self._below - clipped - _SLACK)
        self._num_quiet = self._num_quiet + 1 if abs(score) < QUIET_SCORE else 0
        if max(self._above, self._below) >= _LIMIT:
            self._drifts = 1 if self._above >= self._below else -1
            self._above, self._below = min(self._above, _LIMIT), min(self._below, _LIMIT)
            self._num_quiet = 0
        elif self._drifts and self._num_quiet >= _QUIET_WINDOWS:
            self._drifts = 0


def unknown_spreads(prediction: Prediction, hit_rate: float) -> dict[str, float]:
    """How uncertain figures are, as spreads of log ratios, because of what no metric says.

    That is which prefixes running requests have in common, and where requests wait, for how long.
    """
    of_kv = {"kv_share_pct": -_SHARED * math.log(1 - min(hit_rate, _MOST_HITS))}
    waiting, kv_pct = (max(prediction.values(name), default=0.0) for name in ("waiting", "kv_pct"))
    if waiting < 1 and kv_pct < _BUSY_KV_PCT:
        return of_kv
    late_s = _STEP_ERROR * prediction.span_s
    ttft_ms = np.mean(prediction.values("ttft_ms") or [math.inf])
    return {**of_kv, "ttft_ms": 1e3 * late_s / float(ttft_ms), "waiting": 1.0}


class Judges:
    """The judges of all figures."""

    def __init__(self, num_learned: int) -> None:
        self._judges = {name: Judge(rule, num_learned) for name, rule in RULES.items()}

    def take(
        self, figures: Mapping[str, float], prediction: Prediction, hit_rate: float
    ) -> dict[str, Verdict]:
        """The verdict on each figure that is both measured and predicted."""
        unknown = unknown_spreads(prediction, hit_rate)
        load = float(np.mean(prediction.values("running") or [0.0]))
        measured = with_share(figures)
        draws = [with_share(draw) for draw in prediction.draws]
        verdicts = {}
        for name, judge in self._judges.items():
            values = [draw[name] for draw in draws if name in draw]
            if name in measured and values:
                spread = unknown.get(name, 0.0)
                verdicts[name] = judge.take(measured[name], values, spread, load)
        return verdicts

    def usual_ratios(self) -> dict[str, float]:
        """Measured over predicted of each figure, as far as it is known."""
        found = {name: judge.usual_ratio for name, judge in self._judges.items()}
        return {name: ratio for name, ratio in found.items() if ratio is not None}


def with_share(figures: Mapping[str, float]) -> dict[str, float]:
    """Figures, and `kv_share_pct` if enough requests run."""
    found = dict(figures)
    if figures.get("running", 0.0) >= 1 and figures.get("kv_pct", 0.0) > 0:
        found["kv_share_pct"] = figures["kv_pct"] / figures["running"]
    return found
