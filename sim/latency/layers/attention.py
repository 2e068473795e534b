"""Attention of one layer, looked up in a grid of measured calls.

Times are interpolated linearly over chunk, decode rows, cached tokens and context, in this order.
The knots of an axis are those that were measured at the place on the axes before it, as grids are
ragged: a table may hold two sweeps with different knots.
"""

from collections.abc import Mapping

from sim.latency.curves import Curve, between, bracket

# Times by cached tokens of the prefill, then by context of the decode rows.
Plane = Mapping[float, Mapping[float, float]]


class PrefillAttention:
    """The time of one prefill chunk alone, over its new and cached tokens.

    Some chunks are measured without cached tokens only: the longest ones, if the model's length is
    limited. Cached tokens then add what they add to the longest chunk below that was measured with
    some, times the ratio of both chunks' tokens.

    A chunk longer than all measured ones counts as several of the longest one, with so many cached
    tokens that the mean number of keys is right: its time rises with the square of its length, as
    the number of query-key pairs does.

    Attributes:
        shortest: the least time of any chunk: about the time to launch a call.
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

    A chunk shorter than the shortest measured one lies between decode rows alone and that chunk. A
    chunk longer than the longest one adds what it takes longer alone. For more rows than measured,
    the line through the measured numbers goes on. If a table has no such calls, the times of chunk
    and rows alone are added.
    """

    def __init__(
        self,
        prefill: PrefillAttention,
        decode: DecodeAttention,
        times: Mapping[float, Mapping[float, Plane]],
    ) -> None:
        """Take times by chunk, then by decode rows, then as a plane."""
        self._prefill, self._decode = prefill, decode
        self.chunks = [0.0, *sorted(times)]
        self._by_rows = {
            chunk: ([0.0, *sorted(planes)], {rows: _Sheet(planes[rows]) for rows in planes})
            for chunk, planes in times.items()
        }

    @property
    def max_rows(self) -> float:
        """The most rows that any chunk was measured with."""
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
    """Times of one chunk beside one number of decode rows."""

    def __init__(self, plane: Plane) -> None:
        self._cached = sorted(plane)
        self._curves = [Curve.through(plane[cached]) for cached in self._cached]

    def add(self, blend: Blend, weight: float, cached: float) -> None:
        low, high, share = bracket(self._cached, cached)
        blend.parts.append((weight * (1.0 - share), self._curves[low]))
        if share:
            blend.parts.append((weight * share, self._curves[high]))


def _grown(curve: Curve, growing: Curve, ratio: float) -> Curve:
    """The only time of `curve`, growing with cached tokens `ratio` times as fast as `growing`."""
    start = growing.at(curve.knots[0])
    values = [curve.values[0] + ratio * (time - start) for time in growing.values]
    return Curve(growing.knots, values)
