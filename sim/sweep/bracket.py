"""Finds the smallest number for which something holds, in few trials."""

from dataclasses import dataclass
from math import isqrt


@dataclass(slots=True)
class Bracket:
    """What is known about the smallest number from 1 to `limit` for which something holds.

    What holds for a number is taken to hold for all greater ones. Both ends of the result are
    tried, so it is a place where trials really change from one answer to the other.

    Attributes:
        limit: the greatest number to try.
        low: the greatest number for which it did not hold; 0 before the first trial.
        high: the smallest number for which it held; None: there was none.
    """

    limit: int
    low: int = 0
    high: int | None = None

    @property
    def next_trial(self) -> int | None:
        """The number to try next; None: nothing is left to try.

        First 1, then `limit`, to learn at once whether it can hold at all; then numbers between,
        nearer to the lower end, because a small result is likelier than a large one.
        """
        if self.low == 0:
            return None if self.high is not None else 1
        if self.high is None:
            return None if self.low >= self.limit else self.limit
        if self.high == self.low + 1:
            return None
        return min(max(isqrt(self.low * self.high), self.low + 1), self.high - 1)

    def tell(self, number: int, *, holds: bool) -> None:
        """The answer to a trial."""
        if holds:
            self.high = number
        else:
            self.low = number
