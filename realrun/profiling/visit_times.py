"""How long measuring a composition will take, from what was measured so far."""

from bisect import bisect_left, insort


class VisitTimes:
    """Seconds by arithmetic: more of it takes longer, and at most in proportion."""

    def __init__(self) -> None:
        self._known: list[tuple[float, float]] = []

    def note(self, flops: float, seconds: float) -> None:
        """A visit took so long."""
        insort(self._known, (flops, seconds))

    def at_most_s(self, flops: float) -> float:
        """What a visit should not exceed; 0 before anything is known.

        Neighbours bound it: the next larger one as it is, the next smaller one in proportion.
        """
        place = bisect_left(self._known, (flops, 0.0))
        bounds = [seconds for _, seconds in self._known[place : place + 1]]
        bounds += [
            seconds * flops / smaller for smaller, seconds in self._known[max(place - 1, 0) : place]
        ]
        return min(bounds, default=0.0)
