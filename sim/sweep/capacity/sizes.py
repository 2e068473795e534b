"""Searches for the smallest numbers of servers that meet an SLO, one trial after the other."""

from dataclasses import dataclass, field
from itertools import product
from math import ceil, isqrt

from sim.sweep.capacity.candidates import Candidate, Size


@dataclass(slots=True)
class Bracket:
    """What is known about the smallest number from 1 to `limit` for which something holds.

    What holds for a number is taken to hold for all greater ones. The result and the number below
    it are both tried, so the answer really changes between them.

        limit 64, guess 1:  1 no, 64 yes, 8 yes, 2 no, 4 no, 5 yes             -> 5
        limit 64, guess 5:  5 yes, 4 no                                        -> 5
        limit 64, guess 3:  3 no, 4 no, 6 yes, 5 yes                           -> 5

    Attributes:
        limit: the greatest number to try.
        guess: the number to try first; it costs no trials if it is near the result.
        low: the greatest number for which it did not hold; 0 before the first trial.
        high: the smallest number for which it held; None: there was none.
    """

    limit: int
    guess: int = 1
    low: int = 0
    high: int | None = None

    @property
    def next_trial(self) -> int | None:
        """The number to try next; None: nothing is left to try."""
        first = min(max(self.guess, self.low + 1), self.limit)
        if self.high is None:
            return self._upwards(first)
        if self.high == self.low + 1:
            return None
        if self.high == first:
            return self.high - 1
        if self.low == 0:
            # From the guess down, in growing strides.
            return max(self.high - 2 * (first - self.high) - 1, 1)
        # Nearer to the lower end, because a small result is likelier than a large one.
        return min(max(isqrt(self.low * self.high), self.low + 1), self.high - 1)

    def _upwards(self, first: int) -> int | None:
        if self.low >= self.limit:
            return None
        if self.low < self.guess or self.low == self.guess > 1:
            return first
        if self.guess > 1:
            # From the guess up, in growing strides.
            return min(self.low + 2 * (self.low - self.guess), self.limit)
        # The greatest number, to learn at once whether it can hold at all.
        return self.limit

    def tell(self, number: int, *, holds: bool) -> None:
        """Take in the answer to a trial."""
        if holds:
            self.high = number
        else:
            self.low = number


# Fewer servers than the traffic keeps busy may meet the SLO: they can go on after the last arrival.
LEAST_SHARE = 0.8
# Least load of a kind of servers, and least share that it has of the other kind's load.
_LEAST_LOAD = 0.1


class Replicas:
    """Searches the number of servers that do both prefill and decode.

    `busy` is how many the traffic is expected to keep busy; 0: that is not known.
    """

    def __init__(self, limit: int, busy: float = 0.0) -> None:
        self._bracket = Bracket(limit, max(1, min(ceil(busy), limit)))
        # Fewer are not expected to meet the SLO: other candidates that cost less are tried before.
        self._least = max(1, ceil(LEAST_SHARE * busy))

    @property
    def next_trials(self) -> list[Size]:
        """The sizes to try next; none: the search is over."""
        number = self._bracket.next_trial
        return [] if number is None else [(number,)]

    @property
    def best(self) -> Size | None:
        """The cheapest size that met the SLO; None: there was none."""
        return None if self._bracket.high is None else (self._bracket.high,)

    @property
    def best_possible(self) -> Size:
        """The cheapest size that met the SLO, or is likely to meet it."""
        bracket = self._bracket
        least = max(bracket.low + 1, min(self._least, bracket.limit))
        return (least if bracket.high is None else min(least, bracket.high),)

    @property
    def nearest_failed(self) -> Size:
        """The largest size that missed the SLO."""
        return (self._bracket.low,)

    def learns_busy(self, size: Size) -> bool:
        """Whether `tell` uses `busy` if this size misses the SLO, because it is the first tried."""
        bracket = self._bracket
        is_first = bracket.low == 0 and bracket.high is None
        return is_first and size[0] < bracket.limit

    def tell(self, size: Size, *, holds: bool, busy: float | None = None) -> None:
        """Take in the answer to a trial.

        `busy` is how many servers the traffic keeps busy, as far as the trial tells.
        """
        bracket, learns_busy = self._bracket, self.learns_busy(size)
        bracket.tell(size[0], holds=holds)
        if holds:
            self._least = 1
        elif learns_busy and busy is not None:
            bracket.guess = max(bracket.guess, min(ceil(busy), bracket.limit))
            self._least = max(self._least, ceil(LEAST_SHARE * busy))

    def begin_again(self) -> None:
        """Forget the answers, and begin with the size that they led to."""
        self._least = (self.best or self.best_possible)[0]
        self._bracket = Bracket(self._bracket.limit, self._least)


@dataclass
class Splits:
    """Searches the numbers of prefill and of decode servers.

    More servers of either kind are taken to meet the SLO if fewer do. The search first looks for
    the smallest size that meets it on a path that adds one server of the busier kind at each step.
    If there is one, it then tries the largest of all cheaper sizes, until none of them meets the
    SLO.

    Attributes:
        candidate: the disaggregated servers.
        failed: sizes that missed the SLO.
        best: the cheapest size that met it; None: there was none.
    """

    candidate: Candidate
    failed: list[Size] = field(default_factory=list)
    best: Size | None = None

    def __post_init__(self) -> None:
        decoders = self.candidate.decoders
        self._loads = (0.0, 0.0) if decoders is None else decoders.loads
        floor = [max(1, ceil(LEAST_SHARE * load - 1e-9)) for load in self._loads]
        self._floor: Size = tuple(floor)
        self._path = self._balanced_path()
        # Of the path: the last index that failed, and the first that held.
        self._low, self._high = -1, len(self._path)
        # Tried before all others.
        self._guess: Size | None = None

    def begin_again(self) -> None:
        """Forget that the best size met the SLO, and begin with it. Failed sizes stay failed."""
        self._guess, self.best = self.best, None

    def _fits(self, size: Size) -> bool:
        most = self.candidate.max_gpus
        return sum(size) <= self.candidate.max_replicas and (
            most is None or self.candidate.gpus(size) <= most
        )

    def _balanced_path(self) -> list[Size]:
        path: list[Size] = []
        prefill, decode = self._floor
        # A kind of server whose load is unknown (0) must become more, too.
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
        if self._guess is not None:
            return [self._guess]
        if self._low + 1 < self._high:
            if self._high == len(self._path):
                # In growing strides: a small result is likelier than a large one.
                return [self._path[min(2 * self._low + 2, self._high - 1)]]
            return [self._path[(self._low + self._high) // 2]]
        return [] if self.best is None else self._cheaper(self.candidate.cost(self.best))

    def _cheaper(self, cost: float) -> list[Size]:
        """The largest of the sizes that cost less and may meet the SLO."""
        price = self.candidate.cost
        most = int(self.candidate.gpus(self.best or self._floor))
        ranges = (
            range(low, most // gpus + 1)
            for low, gpus in zip(self._floor, self.candidate.server_gpus, strict=True)
        )
        open_sizes = [
            size
            for size in product(*ranges)
            if price(size) < cost and self._fits(size) and not self._is_refuted(size)
        ]
        return [one for one in open_sizes if not any(_covers(more, one) for more in open_sizes)]

    def _is_refuted(self, size: Size) -> bool:
        """Whether it, or one with more servers, missed the SLO."""
        return any(size == one or _covers(one, size) for one in self.failed)

    @property
    def best_possible(self) -> Size:
        """The cheapest size that met the SLO, or may still meet it."""
        if self._guess is not None:
            return self._guess
        if self.best is not None and not self._cheaper(self.candidate.cost(self.best)):
            return self.best
        prefill, decode = self._floor
        # For each number of prefill servers, the fewest decode servers that no failed size covers.
        most = max((one[0] for one in self.failed), default=0)
        sizes = [
            (num, max([decode, *(one[1] + 1 for one in self.failed if one[0] >= num)]))
            for num in range(prefill, max(most + 1, prefill) + 1)
        ]
        return min(sizes, key=self.candidate.cost)

    @property
    def nearest_failed(self) -> Size:
        """The largest size that missed the SLO; the smallest possible if none was tried."""
        return self._path[self._low] if self._low >= 0 else self._floor

    def tell(self, size: Size, *, holds: bool, busy: float | None = None) -> None:
        """Take in the answer to a trial; `busy` is not used."""
        if size == self._guess:
            self._guess = None
            if not holds:
                self._high = len(self._path)
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
    """Whether `one` has at least as many servers of each kind as `other`, and more of some kind."""
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))
