"""How near drawn requests come to those that they are drawn for."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sim.workload.fitted.fit import SharedRequests
from sim.workload.reuse.curve import HitCurve

# The caches that are compared: those that find these shares of what an unlimited one finds.
_SHARES = (0.3, 0.5, 0.7, 0.9, 0.99)
_PERCENTILES = (50, 90, 99)


class Compared(NamedTuple):
    """A figure of the traffic, and of what is drawn for it."""

    figure: str
    given: float
    drawn: float

    @property
    def off_pct(self) -> float | None:
        """How far off the drawn one is; None if the given one is 0."""
        return 100 * (self.drawn / self.given - 1) if self.given else None


def compared(
    given: SharedRequests, drawn: SharedRequests, curves: tuple[HitCurve, HitCurve]
) -> Iterator[Compared]:
    """Hit rates of five caches and of an unlimited one, lengths, gaps and pauses.

    Pauses are those of requests that share more than half of what requests share on average.
    """
    one, other = curves
    for num_blocks in sorted({one.smallest(share) for share in _SHARES} - {0}):
        name = f"hit rate %, cache of {num_blocks * one.block_size:,} tokens"
        yield Compared(name, one.hit_pct(num_blocks), other.hit_pct(num_blocks))
    unlimited = [curve.hit_pct(curve.max_blocks) for curve in curves]
    yield Compared("hit rate %, unlimited cache", *unlimited)
    both = given, drawn
    least = given.shared_blocks.mean() / 2
    for name, columns in (
        ("prompt tokens", [each.input_tokens for each in both]),
        ("output tokens", [each.output_tokens for each in both]),
        ("gap s", [np.diff(each.arrival_s) for each in both]),
        ("pause s", [each.pause_s[each.shared_blocks > least] for each in both]),
    ):
        if not all(map(len, columns)):
            continue
        yield Compared(f"{name}, mean", *(float(column.mean()) for column in columns))
        for percent in _PERCENTILES:
            found = (float(np.percentile(column, percent)) for column in columns)
            yield Compared(f"{name}, p{percent}", *found)
