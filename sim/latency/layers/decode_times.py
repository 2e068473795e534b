"""Device times of decode steps, as a function of their contexts, which may be unequal."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sim.core.arrays import Float64, Int64, whole_ns
from sim.latency.curves import Curve


class Bins(NamedTuple):
    """One axis of the table, divided into bins.

    Attributes:
        edges: the largest value of each bin; values above the last edge are in the last bin.
        labels: the table's name of each bin.
    """

    edges: tuple[float, ...]
    labels: tuple[str, ...]

    def label(self, value: float) -> str:
        return self.labels[min(bisect_left(self.edges, value), len(self.labels) - 1)]


class SkewAxes(NamedTuple):
    """The axes of the alphas, besides the prefill chunk."""

    rows: Bins
    rate: Bins
    longest: Bins
    cached: Bins


class Alphas:
    """Alphas for one number of decode rows and one prefill chunk, by skew rate and longest context.

    t = t(mean) + alpha x (t(longest) - t(mean)): rows of unequal contexts take the time at the mean
    context, moved by a share alpha towards the time at the longest. A table has fitted alphas.

    The skew rate is (mean - shortest) / (longest - shortest). A shortest context that is not known
    counts as 0, which gives the largest possible rate, mean / longest.
    """

    def __init__(self, axes: SkewAxes, table: Sequence[Sequence[float]]) -> None:
        """Take alphas by bin of the rate, and in each by bin of the longest context."""
        self._rate_edges = axes.rate.edges[:-1]
        self._longest_edges = axes.longest.edges[:-1]
        self._table = [list(row) for row in table]
        self._arrays = tuple(map(np.array, (self._rate_edges, self._longest_edges, table)))

    def corrected(
        self, mean: float, longest: float, shortest: float, times: tuple[float, float]
    ) -> float:
        """The time of a batch, from its contexts and the times at the mean and the longest one."""
        at_mean, at_longest = times
        gap = at_longest - at_mean
        if gap <= 0.0:
            return at_mean
        rate = (mean - shortest) / max(longest - shortest, 1.0)
        row = self._table[bisect_left(self._rate_edges, rate)]
        return at_mean + row[bisect_left(self._longest_edges, longest)] * gap

    def corrected_many(
        self, mean: Float64, longest: Float64, shortest: Float64, times: tuple[Float64, Float64]
    ) -> Float64:
        at_mean, at_longest = times
        gap = at_longest - at_mean
        rate_edges, longest_edges, table = self._arrays
        rate = (mean - shortest) / np.maximum(longest - shortest, 1.0)
        row = np.searchsorted(rate_edges, rate, side="left")
        alpha = table[row, np.searchsorted(longest_edges, longest, side="left")]
        return np.where(gap <= 0.0, at_mean, at_mean + alpha * gap)


class SkewTable:
    """Fitted alphas by prefill chunk, decode rows, skew rate, longest context and cached tokens.

    A chunk that was not measured takes the alphas of the nearest measured chunk; if two are equally
    near, those of the shorter one. A bin without an alpha takes the default.
    """

    def __init__(
        self,
        axes: SkewAxes,
        alphas: Mapping[tuple[float, str, str, str, str], float],
        default: float,
    ) -> None:
        """Take alphas by chunk and the labels of the bins of rows, rate, longest and cached."""
        self._axes = axes
        self._alphas = dict(alphas)
        self._default = default
        self._chunks = sorted({key[0] for key in self._alphas}) or [0.0]
        self._halfway = [(low + high) / 2 for low, high in pairwise(self._chunks)]
        self._kept: dict[tuple[float, str, str], Alphas] = {}

    def alphas(self, rows: int, chunk: float = 0.0, cached: float = 0.0) -> Alphas:
        """The alphas of a step with this number of decode rows; chunk 0: without prefill rows."""
        axes = self._axes
        nearest = self._chunks[bisect_left(self._halfway, chunk)]
        of_rows, of_cached = axes.rows.label(rows), axes.cached.label(cached)
        key = nearest, of_rows, of_cached
        kept = self._kept.get(key)
        if kept is None:
            get, default = self._alphas.get, self._default
            table = [
                [
                    get((nearest, of_rows, rate, longest, of_cached), default)
                    for longest in axes.longest.labels
                ]
                for rate in axes.rate.labels
            ]
            kept = self._kept[key] = Alphas(axes, table)
        return kept


class LayersDecodeTimes:
    """A constant and a curve over the mean context, corrected for unequal contexts.

    Tables do not count the new token in a context; steps do. `step_ns` and `run_ns` compute by the
    same operations in the same order, so they agree to the bit.
    """

    def __init__(
        self,
        rows: int,
        fixed_ns: float,
        curve: Curve,
        *,
        scale_ns: float = 1.0,
        alphas: Alphas | None = None,
    ) -> None:
        """Compose the times of steps with this number of decode rows.

        Args:
            rows: number of decode rows.
            fixed_ns: the time that does not depend on contexts.
            curve: the time that does, over the mean context, in units of `scale_ns`.
            scale_ns: see `curve`.
            alphas: how much longer unequal contexts take; None: no longer than equal ones.
        """
        self._rows = rows
        self._fixed_ns = fixed_ns
        self._curve = curve
        self._scale_ns = scale_ns
        self._alphas = alphas if rows > 1 else None

    def step_ns(self, context: int, longest: int, shortest: int) -> int:
        """The time of a step, from its total, longest and shortest context; 0: not known."""
        mean = context / self._rows - 1.0
        time = self._curve.at(mean)
        if self._alphas is not None and longest:
            most, least = longest - 1.0, max(shortest - 1.0, 0.0)
            time = self._alphas.corrected(mean, most, least, (time, self._curve.at(most)))
        device_ns = round(self._fixed_ns + self._scale_ns * time)
        return max(1, device_ns)

    def run_ns(self, context: int, longest: int, shortest: int, num_steps: int) -> Int64:
        """Times of a step and the decode steps after it; shape [num_steps]."""
        steps = np.arange(num_steps, dtype=np.int64)
        mean: Float64 = (context + self._rows * steps) / self._rows - 1.0
        time = self._curve.at_many(mean)
        if self._alphas is not None and longest:
            most = steps.astype(np.float64) + (longest - 1.0)
            # A shortest context that is not known counts as 0.
            least = np.maximum((steps + shortest) - 1.0, 0.0) if shortest else np.zeros(num_steps)
            times = time, self._curve.at_many(most)
            time = self._alphas.corrected_many(mean, most, least, times)
        device_ns = self._fixed_ns + self._scale_ns * time
        return np.maximum(whole_ns(device_ns), 1)
