"""Searches for the largest load that a deployment of a given size bears within an SLO."""

from itertools import product
from math import log

from sim.sweep.capacity.candidates import Candidate, Size

# Loads are tried from the plan's own divided by this, to the plan's own times this.
_MOST = 512.0
# A search begins with the load that step times promise; they leave out that steps are shared.
_STRIDE, _GROWTH = 2, 3


class Loads:
    """Searches the load under which servers of one size keep the SLO.

    Loads are numbered: load `k` is the plan's own times `(1 + step) ** k`. A smaller load is taken
    to keep the SLO if a larger one does. The search goes up or down from the first load in growing
    strides, and then halves the range; the load that it finds and the next one are both tried.

    Args:
        size: the numbers of servers.
        step: by which share each load is larger than the one before.
        first: the load to try first, as a multiple of the plan's own.
        most: the largest load that they are expected to bear, before anything is tried.
    """

    def __init__(self, size: Size, step: float, first: float = 1.0, most: float = _MOST) -> None:
        self.size = size
        self._step = step
        self._limit = self._number(_MOST)
        self._first = max(-self._limit, min(self._number(first), self._limit))
        # The largest load that kept the SLO, and the smallest that missed it.
        self._low: int | None = None
        self._high: int | None = None
        self._stride = _STRIDE
        # The largest load that may keep it, as step times or other seeds said.
        self._most = min(self._number(most), self._limit)

    def load(self, numbered: Size) -> float:
        """A load as a multiple of the plan's own."""
        return float((1 + self._step) ** numbered[0])

    def _number(self, load: float) -> int:
        return round(log(load) / log(1 + self._step))

    @property
    def next_trials(self) -> list[Size]:
        """The number of the load to try next; none: the search is over."""
        number = self._next()
        return [] if number is None else [(number,)]

    def _next(self) -> int | None:
        low, high = self._low, self._high
        if low is not None and high is not None:
            return None if high == low + 1 else (low + high) // 2
        if low is not None:
            return min(low + self._stride, self._limit) if low < self._limit else None
        if high is not None:
            return max(high - self._stride, -self._limit) if high > -self._limit else None
        return self._first

    @property
    def best(self) -> Size | None:
        """The largest load that kept the SLO; None: there was none."""
        return None if self._low is None else (self._low,)

    @property
    def best_possible(self) -> Size:
        """The largest load that kept the SLO, or may still keep it."""
        most = self._most if self._high is None else self._high - 1
        return (most if self._low is None else max(most, self._low),)

    @property
    def nearest_failed(self) -> Size:
        """The smallest load that missed the SLO."""
        return (self._limit if self._high is None else self._high,)

    def tell(self, size: Size, *, holds: bool, busy: float | None = None) -> None:
        """Take in the answer to a trial; `busy` is not used."""
        is_first = self._low is None and self._high is None
        if holds:
            self._low = size[0]
        else:
            self._high = size[0]
        if not is_first:
            self._stride *= _GROWTH

    def begin_again(self) -> None:
        """Forget the answers, and begin with the load that they led to."""
        self._most = self.best_possible[0]
        self._first, self._stride = self._most if self._low is None else self._low, 1
        self._low = self._high = None


def largest_size(candidate: Candidate, busy: Size | tuple[float, ...]) -> Size:
    """The numbers of servers that bear most within the limits of a candidate.

    `busy` is how many servers of each kind the plan's traffic keeps busy, or zeros. Of
    disaggregated servers, it is the split whose busier kind is least busy.
    """
    if candidate.decoders is None:
        return (candidate.max_replicas,)
    most = candidate.max_replicas
    limits = [min(most, (candidate.max_gpus or most * gpus) // gpus)
              for gpus in candidate.server_gpus]  # fmt: skip
    fitting = [
        size
        for size in product(*(range(1, limit + 1) for limit in limits))
        if sum(size) <= most
        and (candidate.max_gpus is None or candidate.gpus(size) <= candidate.max_gpus)
    ]
    shares = [share or max(*busy, 1.0) for share in busy]

    def loads(size: Size) -> list[float]:
        return [num / share for num, share in zip(size, shares, strict=True)]

    return max(fitting, key=lambda size: (min(loads(size)), sum(loads(size))))
