"""Attention of one layer, looked up in a grid of measured calls.

Times are interpolated linearly over chunk, decode rows, cached tokens and context, in this order.
The measured calls need not form a full grid, because a table may hold two sweeps with different
values. Example: each measured chunk has its own list of measured decode rows.
"""

from collections.abc import Mapping

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
        chunks: the measured lengths.
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
