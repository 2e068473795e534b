"""The running batch: requests that decode in lockstep, one token each a step.

All rows advance together, so a row's lengths are kept relative to two counters of the batch: decode
steps begun (their KV is allocated) and decode steps done (their tokens are known). k steps cost as
much as one. Under overlap scheduling "done" lags "begun" by one.
"""

import heapq
from collections.abc import Collection, Iterator, Sequence
from typing import overload

from sim.engine.page_demand import PageDemand
from sim.engine.request import Request

# When a row reaches its limit, a number that tells entries apart, the row.
_Due = tuple[int, int, Request]
# Its tokens in KV relative to the counters or less than nothing by as many, a number that tells
# entries apart, the row: the first of a heap is the shortest or the longest.
_Length = tuple[int, int, Request]
# Entries of rows that have left are dropped once they are many.
_MOST_STALE = 256


class RowNames(Sequence[str]):
    """The rids of a list of requests that is not changed; looked up if somebody asks."""

    def __init__(self, requests: list[Request]) -> None:
        self._requests = requests
        self._rids: list[str] | None = None

    def __len__(self) -> int:
        return len(self._requests)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._all()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def _all(self) -> list[str]:
        if self._rids is None:
            self._rids = [request.spec.rid for request in self._requests]
        return self._rids


class RunningBatch:
    """Rows in batch order. `requests` is replaced, never changed, when the composition changes.

    Attributes:
        rids: row names in batch order; the same object until the composition changes.
        is_full: the batch_is_full flag of rule 7.
        num_begun, num_done: decode steps begun and done.
        num_tokens: tokens in KV, summed over the rows.
        founding_tokens: prefill tokens of the batch this one grew from. SGLang's counter of
            processed tokens adds them again at every decode step; so does ours (policy hrrn).
    """

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self.requests: list[Request] = []
        self.is_full = False
        self.num_begun = 0
        self.num_done = 0
        self.num_tokens = 0
        self.founding_tokens = 0
        self._num_rows_by_residue = [0] * page_size
        self._length_heap: list[_Due] = []
        self._longest_heap: list[_Length] = []
        self._shortest_heap: list[_Length] = []
        self._num_pushed = 0
        self.rids = RowNames(self.requests)
        self._reserved = 0.0
        self._reserved_key: tuple[int, int, float] | None = None

    def __len__(self) -> int:
        return len(self.requests)

    # ---- one row -------------------------------------------------------------------------------

    def seq_len(self, request: Request) -> int:
        return request.seq_base + self.num_begun

    def num_generated(self, request: Request) -> int:
        return request.generated_base + self.num_done

    @property
    def max_seq_len(self) -> int:
        """Tokens in KV of the row that has most; 0 without rows."""
        heap = self._longest_heap
        while heap and not _is_in_batch(heap[0], -heap[0][0]):
            heapq.heappop(heap)
        return self.num_begun - heap[0][0] if heap else 0

    @property
    def min_seq_len(self) -> int:
        """Tokens in KV of the row that has fewest; 0 without rows."""
        heap = self._shortest_heap
        while heap and not _is_in_batch(heap[0], heap[0][0]):
            heapq.heappop(heap)
        return self.num_begun + heap[0][0] if heap else 0

    # ---- composition ---------------------------------------------------------------------------

    def append(self, requests: Sequence[Request], *, num_missed_steps: int = 0) -> None:
        """Add rows, that have no part in the steps begun but not done if those are `missed`."""
        self._set([*self.requests, *requests], joining=requests)
        if num_missed_steps:
            for request in requests:
                self._rebase(request, request.num_generated - num_missed_steps)

    def prepend(self, requests: Sequence[Request]) -> None:
        self._set([*requests, *self.requests], joining=requests)

    def remove(self, leaving: Collection[Request]) -> None:
        """Take rows out; their lengths are written back to them."""
        if not leaving:
            return
        for request in leaving:
            if request.in_running_batch:
                self._leave(request)
        if len(leaving) == 1:
            (gone,) = leaving
            self._set([request for request in self.requests if request is not gone])
        else:
            all_gone = set(map(id, leaving))
            self._set([request for request in self.requests if id(request) not in all_gone])

    def reorder(self, requests: list[Request]) -> None:
        """Put the same rows in another order."""
        self._set(requests)

    def _set(self, requests: list[Request], joining: Sequence[Request] = ()) -> None:
        self.requests = requests
        self.rids = RowNames(requests)
        self._reserved_key = None
        for request in joining:
            self._join(request)

    def _join(self, request: Request) -> None:
        request.in_running_batch = True
        self.num_tokens += request.seq_len
        request.seq_base = request.seq_len - self.num_begun
        self._num_rows_by_residue[request.seq_base % self._page_size] += 1
        self._rebase(request, request.num_generated)
        self._note_length(request)

    def _note_length(self, request: Request) -> None:
        if len(self._longest_heap) > _MOST_STALE + 2 * len(self.requests):
            rows = [entry for entry in self._longest_heap if _is_in_batch(entry, -entry[0])]
            self._longest_heap = rows
            self._shortest_heap = [(-base, number, row) for base, number, row in rows]
            heapq.heapify(self._longest_heap)
            heapq.heapify(self._shortest_heap)
        heapq.heappush(self._longest_heap, (-request.seq_base, self._num_pushed, request))
        heapq.heappush(self._shortest_heap, (request.seq_base, self._num_pushed, request))

    def _rebase(self, request: Request, num_generated: int) -> None:
        request.generated_base = num_generated - self.num_done
        self._reserved_key = None
        request.length_due = request.max_new_tokens - request.generated_base
        self._num_pushed += 1
        if len(self._length_heap) > _MOST_STALE + 2 * len(self.requests):
            self._length_heap = [entry for entry in self._length_heap if _is_current(entry)]
            heapq.heapify(self._length_heap)
        heapq.heappush(self._length_heap, (request.length_due, self._num_pushed, request))

    def _leave(self, request: Request) -> None:
        request.seq_len = self.seq_len(request)
        request.num_generated = self.num_generated(request)
        self.num_tokens -= request.seq_len
        self._num_rows_by_residue[request.seq_base % self._page_size] -= 1
        request.length_due = -1
        request.in_running_batch = False

    def reserved_tokens(self, clip: int, ratio: float) -> float:
        """What the rows may still generate, each at most `clip` tokens, times `ratio` (rule 2).

        Summed in batch order, as SGLang sums; the whole for rows that ignore end tokens.
        """
        key = (self.num_done, clip, ratio)
        if self._reserved_key != key:
            reserved, num_done = 0.0, self.num_done
            for request in self.requests:
                left = request.length_due - num_done
                if left > clip:
                    left = clip
                reserved += left if request.spec.ignore_eos else left * ratio
            self._reserved, self._reserved_key = reserved, key
        return self._reserved

    # ---- advancing -----------------------------------------------------------------------------

    @property
    def num_new_pages(self) -> int:
        """Pages that the next step starts: rows whose tokens fill their pages (rule 11)."""
        return self._num_rows_by_residue[-self.num_begun % self._page_size]

    def page_demand(self) -> PageDemand:
        """Pages that the next steps start. The batch must not be empty."""
        residues, first = self._num_rows_by_residue, -self.num_begun % self._page_size
        return PageDemand(residues[first::-1] + residues[:first:-1], len(self.requests))

    def begin_steps(self, num_steps: int = 1) -> None:
        self.num_begun += num_steps
        self.num_tokens += num_steps * len(self.requests)

    def finish_steps(self, num_steps: int = 1) -> None:
        self.num_done += num_steps

    def add_first_token(self, request: Request) -> None:
        """A row that joined while its prefill was in flight has its first token now."""
        self._rebase(request, self.num_generated(request) + 1)

    def rows_at_limit(self, num_tokens_ahead: int = 0) -> list[Request]:
        """Rows that have reached `max_new_tokens`, or will with so many tokens more."""
        self._drop_stale()
        due = self.num_done + num_tokens_ahead
        heap = self._length_heap
        if not heap or heap[0][0] > due:
            return []
        if all(entry[0] > due for entry in heap[1:3]):
            return [heap[0][2]]
        return [request for request in self.requests if request.length_due <= due]

    @property
    def num_steps_to_limit(self) -> int:
        """Tokens until the first row reaches `max_new_tokens`. The batch must not be empty."""
        self._drop_stale()
        return self._length_heap[0][0] - self.num_done

    def _drop_stale(self) -> None:
        heap = self._length_heap
        while heap and not _is_current(heap[0]):
            heapq.heappop(heap)


def _is_current(entry: _Due) -> bool:
    """Whether the row is in the batch still, and its limit where the entry says."""
    due, _, request = entry
    return request.length_due == due


def _is_in_batch(entry: _Length, seq_base: int) -> bool:
    """Whether the entry's row is in the batch still, and as long as then."""
    request = entry[2]
    return request.in_running_batch and request.seq_base == seq_base
