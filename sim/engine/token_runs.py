"""The gaps between the tokens of requests that decode in runs of steps."""

from collections.abc import Sequence

import numpy as np

from sim.core.arrays import Int64


class TokenRuns:
    """The tokens of runs of steps, which came between single gaps.

    Attributes:
        num_gaps: gaps of all runs.
    """

    def __init__(self) -> None:
        # Of each run: the number of single gaps before it; when its tokens came, int64 as bytes;
        # how many gaps are between these; and how many requests had them.
        self._places: list[int] = []
        self._times: list[bytes] = []
        self._lengths: list[int] = []
        self._counts: list[int] = []
        self.num_gaps = 0

    def add(self, place: int, times_ns: Int64, count: int) -> None:
        num_gaps = len(times_ns) - 1
        self._places.append(place)
        self._times.append(times_ns.tobytes())
        self._lengths.append(num_gaps)
        self._counts.append(count)
        self.num_gaps += num_gaps

    def among(self, singles: Sequence[list[int]]) -> list[Int64]:
        """All gaps in order, how often each occurred, and when each ended.

        `singles` are the same of single gaps, perhaps without the times.
        """
        columns = [np.array(each, dtype=np.int64) for each in singles]
        if not self._places:
            return columns
        lengths = np.array(self._lengths)
        times_ns = np.frombuffer(b"".join(self._times), dtype=np.int64)
        # What is between the first time of a run and the run before is no gap.
        is_gap = np.ones(len(times_ns), dtype=np.bool_)
        is_gap[(lengths + 1).cumsum() - lengths - 1] = False
        gap_ns = np.diff(times_ns, prepend=0)[is_gap]
        of_runs = (gap_ns, np.repeat(np.array(self._counts), lengths), times_ns[is_gap])
        places = np.repeat(np.array(self._places), lengths)
        return [np.insert(column, places, of_runs[i]) for i, column in enumerate(columns)]
