"""Attention of one layer, looked up in a grid of measured calls.

Every axis is interpolated linearly, in the order chunk, decode rows, cached tokens, context, and
each with the knots that were measured at its place: grids are ragged, and where two sweeps of
different knots were put into one table, they interleave.
"""

from collections.abc import Mapping

from sim.latency.curves import Curve, between, bracket

# Times by cached tokens of the prefill, then by context of the decode rows.
Plane = Mapping[float, Mapping[float, float]]


class PrefillAttention:
    """One prefill chunk by itself, over new and cached tokens.

    A chunk that was measured without cached tokens only (the longest ones, in a model of limited
    length) takes longer with them as the longest chunk below that was measured with some does, in
    proportion of their tokens.

    A chunk longer than any is so many times the longest one, whose tokens attend to as many keys on
    average: its time rises with the square, as the number of query-key pairs does.

    Attributes:
        shortest: the least time of any chunk: what launching a call takes.
    """

    def __init__(self, times: Plane, *, by_key: bool = False) -> None:
        """Take times by chunk, then by cached tokens, or by the mean of the keys attended to."""
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
    """Decode rows by themselves, over their number and their mean context."""

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
        """The time of so many rows, as a function of their context."""
        curve = self._kept.get(rows)
        if curve is None:
            low, high, share = bracket(self.rows, rows)
            curve = self._curves[low]
            if share:
                curve = between(curve, self._curves[high], share)
            self._kept[rows] = curve
        return curve


class MixedAttention:
    """One call for a prefill chunk and decode rows together.

    Chunks between none and the shortest one lie between decode rows alone and that chunk. Chunks
    beyond the longest one take longer as they do alone. Rows beyond the most that a chunk was
    measured with go on along the line of the measured ones. A table without any such call makes do
    with both by themselves, one after the other.
    """

    def __init__(
        self,
        prefill: PrefillAttention,
        decode: DecodeAttention,
        times: Mapping[float, Mapping[float, Plane]],
    ) -> None:
        """Take times by chunk, then by decode rows, then a plane."""
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
        """Add a chunk that was measured; 0 stands for decode rows alone."""
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
    """A constant and weighted curves over one size, added up; never negative."""

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
    """Times of one chunk with one number of decode rows."""

    def __init__(self, plane: Plane) -> None:
        self._cached = sorted(plane)
        self._curves = [Curve.through(plane[cached]) for cached in self._cached]

    def add(self, blend: Blend, weight: float, cached: float) -> None:
        low, high, share = bracket(self._cached, cached)
        blend.parts.append((weight * (1.0 - share), self._curves[low]))
        if share:
            blend.parts.append((weight * share, self._curves[high]))


def _grown(curve: Curve, growing: Curve, ratio: float) -> Curve:
    """`curve`'s one time, growing with cached tokens `ratio` times as `growing` does."""
    start = growing.at(curve.knots[0])
    values = [curve.values[0] + ratio * (time - start) for time in growing.values]
    return Curve(growing.knots, values)
