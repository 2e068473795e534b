"""Times of decode steps, and of attention, which is looked up in a grid of measured calls.

Times are interpolated linearly over chunk, decode rows, cached tokens and context, in this order.
The measured calls need not form a full grid, because a table may hold two sweeps with different
values. Example: each measured chunk has its own list of measured decode rows.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sim.core.arrays import Float64, Int64, whole_ns
from sim.latency.curves import Curve, between, bracket

# Times by two sizes of a call, such as its decode rows and their context.
Plane = Mapping[float, Mapping[float, float]]


class PrefillAttention:
    """The time of one prefill chunk alone, over its new and cached tokens.

    Some chunks may have no measurement with cached tokens, for example the longest ones, because
    the model's length is limited. What cached tokens add to such a chunk is what they add to the
    next shorter chunk that was measured with them, times the ratio of the two lengths.

    The time of a chunk longer than all measured ones is that of several chunks of the longest
    measured length. These get more cached tokens, so that the mean number of keys is right. So the
    time grows with the square of the chunk, as the number of query-key pairs does.

    Attributes:
        shortest: the shortest time of any call, which is about the time to launch it.
    """

    def __init__(self, times: Plane, *, by_key: bool = False) -> None:
        """Take times by chunk, then by cached tokens; with `by_key` by the mean number of keys."""
        self.chunks = sorted(times)
        self._by_key = by_key
        self._curves: list[Curve] = []
        growing: tuple[float, Curve] | None = None
        for chunk in self.chunks:
            curve = Curve.through(times[chunk])
            if len(curve.knots) > 1:
                growing = chunk, curve
            elif growing is not None:
                curve = _grown(curve, growing[1], chunk / growing[0])
            self._curves.append(curve)
        self.shortest = min(min(row.values()) for row in times.values())

    @property
    def max_cached(self) -> float:
        return max(curve.knots[-1] for curve in self._curves)

    def at(self, chunk: float, cached: float) -> float:
        longest = self.chunks[-1]
        if chunk > longest:
            if not self._by_key:
                cached += (chunk - longest) / 2
            return chunk / longest * self._curves[-1].at(cached)
        low, high, share = bracket(self.chunks, chunk)
        value = self._curves[low].at(cached)
        if share:
            value += share * (self._curves[high].at(cached) - value)
        return max(0.0, value)


class DecodeAttention:
    """The time of decode rows alone, over their number and their mean context."""

    def __init__(self, times: Plane) -> None:
        """Take times by rows, then by context."""
        self.rows = sorted(times)
        self._curves = [Curve.through(times[rows]) for rows in self.rows]
        self._kept: dict[int, Curve] = {}

    @property
    def contexts(self) -> tuple[float, float]:
        """The least and the greatest context that was measured."""
        return (
            min(curve.knots[0] for curve in self._curves),
            max(curve.knots[-1] for curve in self._curves),
        )

    def curve(self, rows: int) -> Curve:
        """The time of this number of rows, as a function of their mean context."""
        curve = self._kept.get(rows)
        if curve is None:
            low, high, share = bracket(self.rows, rows)
            curve = self._curves[low]
            if share:
                curve = between(curve, self._curves[high], share)
            self._kept[rows] = curve
        return curve


class MixedAttention:
    """The time of one call with a prefill chunk and decode rows.

    For a chunk shorter than all measured ones, the time is interpolated between that of the decode
    rows alone and that with the shortest measured chunk. For a chunk longer than all measured ones,
    the time with the longest measured chunk is taken, plus the difference that the two chunks have
    without decode rows. For more rows than measured, times are extrapolated. If a table has no
    mixed calls, the times of the chunk alone and of the rows alone are added.
    """

    def __init__(
        self,
        prefill: PrefillAttention,
        decode: DecodeAttention,
        times: Mapping[float, Mapping[float, Plane]],
    ) -> None:
        """Take times by chunk, decode rows, cached tokens (or keys), and context of the rows."""
        self._prefill, self._decode = prefill, decode
        self.chunks = [0.0, *sorted(times)]
        self._by_rows = {
            chunk: ([0.0, *sorted(planes)], {rows: _Sheet(planes[rows]) for rows in planes})
            for chunk, planes in times.items()
        }

    @property
    def max_rows(self) -> float:
        """The largest number of decode rows with which any chunk was measured."""
        return max((rows[-1] for rows, _ in self._by_rows.values()), default=0.0)

    def blend(self, chunk: float, cached: float, rows: int) -> "Blend":
        """The time of a call, as a function of the decode rows' context."""
        blend = Blend()
        longest = self.chunks[-1]
        if chunk > longest:
            blend.constant = self._prefill.at(chunk, cached)
            if longest:
                blend.constant -= self._prefill.at(longest, cached)
            self._add(blend, 1.0, longest, cached, rows)
            return blend
        low, high, share = bracket(self.chunks, chunk)
        self._add(blend, 1.0 - share, self.chunks[low], cached, rows)
        if share:
            self._add(blend, share, self.chunks[high], cached, rows)
        return blend

    def _add(self, blend: "Blend", weight: float, chunk: float, cached: float, rows: int) -> None:
        """Add a measured chunk to the blend; chunk 0 stands for decode rows alone."""
        if not chunk:
            blend.parts.append((weight, self._decode.curve(rows)))
            return
        knots, sheets = self._by_rows[chunk]
        low, high, share = bracket(knots, rows)
        if low:
            sheets[knots[low]].add(blend, weight * (1.0 - share), cached)
        else:
            blend.constant += weight * (1.0 - share) * self._prefill.at(chunk, cached)
        if share:
            sheets[knots[high]].add(blend, weight * share, cached)


class Blend:
    """The sum of a constant and of weighted curves over one size; never negative."""

    __slots__ = ("constant", "parts")

    def __init__(self) -> None:
        self.constant = 0.0
        self.parts: list[tuple[float, Curve]] = []

    def at(self, x: float) -> float:
        value = self.constant
        for weight, curve in self.parts:
            value += weight * curve.at(x)
        return max(0.0, value)


class _Sheet:
    """Times of one chunk together with one number of decode rows."""

    def __init__(self, plane: Plane) -> None:
        self._cached = sorted(plane)
        self._curves = [Curve.through(plane[cached]) for cached in self._cached]

    def add(self, blend: Blend, weight: float, cached: float) -> None:
        low, high, share = bracket(self._cached, cached)
        blend.parts.append((weight * (1.0 - share), self._curves[low]))
        if share:
            blend.parts.append((weight * share, self._curves[high]))


def _grown(curve: Curve, growing: Curve, ratio: float) -> Curve:
    """The single time of `curve`, plus `ratio` times what cached tokens add in `growing`."""
    start = growing.at(curve.knots[0])
    values = [curve.values[0] + ratio * (time - start) for time in growing.values]
    return Curve(growing.knots, values)


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

        The time that depends on contexts is a `curve` over the mean context, in units of
        `scale_ns`. `alphas` say how much longer unequal contexts take; None: no longer than equal
        ones.
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
