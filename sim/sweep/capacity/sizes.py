"""Finds the smallest number of servers, or the cheapest pair of numbers, that does."""

from dataclasses import dataclass, field
from itertools import product
from math import ceil, isqrt

from sim.sweep.capacity.candidates import Candidate, Size


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


# Step times say how many servers the traffic keeps busy. A little fewer may do: the traffic ends.
_LEAST_SHARE = 0.8
_LEAST_LOAD = 0.1


class Replicas:
    """Searches the number of servers that do both."""

    def __init__(self, limit: int) -> None:
        self._bracket = Bracket(limit)

    @property
    def next_trials(self) -> list[Size]:
        """The sizes to try next; none: the search is over."""
        number = self._bracket.next_trial
        return [] if number is None else [(number,)]

    @property
    def best(self) -> Size | None:
        """The cheapest size for which it held; None: there was none."""
        return None if self._bracket.high is None else (self._bracket.high,)

    @property
    def least(self) -> Size:
        """The cheapest size for which it may hold, or held."""
        return (self._bracket.low + 1,)

    @property
    def largest_failed(self) -> Size:
        """The largest size for which it did not hold."""
        return (self._bracket.low,)

    def tell(self, size: Size, *, holds: bool) -> None:
        """The answer to a trial."""
        self._bracket.tell(size[0], holds=holds)


@dataclass
class Splits:
    """Searches the numbers of prefill and of decode servers.

    What holds for two numbers is taken to hold for all greater ones. First the smallest size is
    sought on a path on which the servers that are busier become one more at each step. If there is
    none, the search is over. Else all splits that are cheaper and as large as can be are tried,
    until none of them does.

    Attributes:
        candidate: the disaggregated servers.
        failed: sizes for which it did not hold.
        best: the cheapest size for which it held; None: there was none.
    """

    candidate: Candidate
    failed: list[Size] = field(default_factory=list)
    best: Size | None = None

    def __post_init__(self) -> None:
        decoders = self.candidate.decoders
        self._loads = (0.0, 0.0) if decoders is None else decoders.loads
        floor = [max(1, ceil(_LEAST_SHARE * load - 1e-9)) for load in self._loads]
        self._floor: Size = tuple(floor)
        self._path = self._balanced_path()
        # Of the path: the last index that failed, and the first that held.
        self._low, self._high = -1, len(self._path)

    def _fits(self, size: Size) -> bool:
        most = self.candidate.max_gpus
        return sum(size) <= self.candidate.max_replicas and (
            most is None or self.candidate.gpus(size) <= most
        )

    def _balanced_path(self) -> list[Size]:
        path: list[Size] = []
        prefill, decode = self._floor
        # Servers whose load the step times do not tell become more, too.
        loads = [max(load, _LEAST_LOAD, _LEAST_LOAD * max(self._loads)) for load in self._loads]
        while self._fits((prefill, decode)):
            path.append((prefill, decode))
            if loads[0] / prefill > loads[1] / decode:
                prefill += 1
            else:
                decode += 1
        return path

    @property
    def next_trials(self) -> list[Size]:
        """The sizes to try next; none: the search is over."""
        if self._low + 1 < self._high:
            if self._high == len(self._path):
                # Farther and farther: small sizes are likelier than large ones.
                return [self._path[min(2 * self._low + 2, self._high - 1)]]
            return [self._path[(self._low + self._high) // 2]]
        return [] if self.best is None else self._cheaper(self.candidate.cost(self.best))

    def _cheaper(self, cost: float) -> list[Size]:
        """The sizes that cost less and may do, without those that are a part of another one."""
        price = self.candidate.cost
        fill, decode = self.candidate.server_gpus
        most = int(self.candidate.gpus(self.best or self._floor))
        ranges = (
            range(low, most // gpus + 1)
            for low, gpus in zip(self._floor, (fill, decode), strict=True)
        )
        open_sizes = [
            size
            for size in product(*ranges)
            if price(size) < cost and self._fits(size) and not self._is_refuted(size)
        ]
        return [one for one in open_sizes if not any(_covers(two, one) for two in open_sizes)]

    def _is_refuted(self, size: Size) -> bool:
        return any(size == one or _covers(one, size) for one in self.failed)

    @property
    def least(self) -> Size:
        """The cheapest size for which it may hold, or held."""
        if self.best is not None and not self._cheaper(self.candidate.cost(self.best)):
            return self.best
        prefill, decode = self._floor
        most = max((one[0] for one in self.failed), default=0)
        sizes = [
            (num, max([decode, *(one[1] + 1 for one in self.failed if one[0] >= num)]))
            for num in range(prefill, max(most + 1, prefill) + 1)
        ]
        return min(sizes, key=self.candidate.cost)

    @property
    def largest_failed(self) -> Size:
        """The largest size for which it did not hold; the smallest possible, if none was tried."""
        return self._path[self._low] if self._low >= 0 else self._floor

    def tell(self, size: Size, *, holds: bool) -> None:
        """The answer to a trial."""
        if size in self._path:
            index = self._path.index(size)
            if holds:
                self._high = min(self._high, index)
            else:
                self._low = max(self._low, index)
        if not holds:
            self.failed.append(size)
        elif self.best is None or self.candidate.cost(size) < self.candidate.cost(self.best):
            self.best = size


def _covers(one: Size, other: Size) -> bool:
    """Whether a size is another one with more servers."""
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))
