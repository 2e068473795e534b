"""The running batch: requests that decode together, each one token a step.

A step only changes the counters of the batch, not its rows, so k steps cost as much as one
(`sim.engine.request.Request` has a worked example).
"""

import heapq
from collections.abc import Collection, Iterator, Sequence
from typing import Generic, TypeVar

from mypy_extensions import mypyc_attr

from sim.engine.decode_run import PageDemand
from sim.engine.page_pool import CacheListener, KeysOf
from sim.engine.request import Lockstep, Request
from sim.engine.store import Store

R = TypeVar("R", bound=Request)

# The row's `limit_step`; a number that breaks ties; the row.
_Due = tuple[int, int, R]
# The row's `seq_base`, or its negative in the heap of longest rows; a number that breaks ties; the
# row.
_Length = tuple[int, int, R]
# A heap is rebuilt without its outdated entries when it is longer than this plus twice the batch.
_MOST_STALE = 256


@mypyc_attr(allow_interpreted_subclasses=True)
class KVMemory:
    """Base class of a server's KV memory. All its token counts are multiples of the page size.

    Attributes:
        page_size: tokens in a page (some engines call a page a block).
    """

    page_size: int
    num_pages: int

    @property
    def num_free_pages(self) -> int:
        """Pages that are free, without evicting any of the `evictable_tokens`."""
        raise NotImplementedError

    @property
    def evictable_tokens(self) -> int:
        """Cached tokens that no request uses and that do not count as free."""
        raise NotImplementedError

    @property
    def host_used_tokens(self) -> int | None:
        """Tokens in host memory; None if the server keeps no KV there."""
        return None

    @property
    def is_copying(self) -> bool:
        """Whether copies are under way, or are to be made, so that the server is not idle."""
        return False

    @property
    def pool_tokens(self) -> int:
        return self.num_pages * self.page_size

    @property
    def free_tokens(self) -> int:
        return self.num_free_pages * self.page_size

    def ceil_page(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_size) * self.page_size

    def floor_page(self, num_tokens: int) -> int:
        return num_tokens // self.page_size * self.page_size

    def num_affordable_steps(self, num_steps: int, demand: PageDemand) -> int:
        """How many of the next decode steps, at most `num_steps`, find pages without eviction."""
        # If there is anything to evict, a step evicts unless every row could get a free page.
        spares = self.evictable_tokens > 0
        return demand.num_affordable(num_steps, self.num_free_pages, spares=spares)

    def listen(self, device: CacheListener, host: CacheListener) -> KeysOf | None:
        """Tell from now on which blocks the prefix cache holds on the device, and in host memory.

        Both must be empty. A store below them has listeners of its own (`store`).

        Returns what makes the keys of a prompt's blocks; None: this memory tells nothing.
        """
        return None

    @property
    def store(self) -> Store | None:
        """The store below host memory, which other servers may use, too; None: there is none."""
        return None

    @property
    def reserving_evicts(self) -> bool:
        """Whether `reserve_pages` may take pages that the prefix cache holds."""
        return False

    def reserve_pages(self, num_pages: int) -> None:
        """Reserve free pages for decode steps; which row gets which page is decided later."""
        raise NotImplementedError


class RowNames:
    """The rids of a list of requests that never changes. The list of rids is made on first use."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests
        self._rids: list[str] | None = None

    def __len__(self) -> int:
        return len(self._requests)

    def __getitem__(self, index: int, /) -> str:
        return self._all()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def _all(self) -> list[str]:
        if self._rids is None:
            self._rids = [request.spec.rid for request in self._requests]
        return self._rids


class RunningBatch(Lockstep, Generic[R]):
    """The rows that decode, in batch order.

    When rows join or leave, `requests` and `rids` become new objects; the old ones never change.

    Attributes:
        num_tokens: tokens in KV, summed over the rows.
    """

    def __init__(self, page_size: int) -> None:
        super().__init__()
        self._page_size = page_size
        self.requests: list[R] = []
        self.num_tokens = 0
        # By `seq_base` modulo the page size: rows of one residue fill their pages in the same step.
        self._num_rows_by_residue = [0] * page_size
        self._limit_heap: list[_Due[R]] = []
        self._longest_heap: list[_Length[R]] = []
        self._shortest_heap: list[_Length[R]] = []
        self._num_pushed = 0
        # Of these rows: the demand before a step, and that step; the lengths of the longest and of
        # the shortest row, as `seq_base`. None: not known.
        self._demand: PageDemand | None = None
        self._demand_begun = 0
        self._longest: int | None = None
        self._shortest: int | None = None
        self.rids = RowNames(self.requests)
        self._reserved = 0.0
        self._reserved_key: tuple[int, int, float, float] | None = None

    def __len__(self) -> int:
        return len(self.requests)

    # ---- the longest and the shortest row --------------------------------------------------------

    @property
    def max_seq_len(self) -> int:
        """Tokens in KV of the longest row; 0 without rows."""
        if self._longest is None:
            heap = self._longest_heap
            while heap and not self._is_in_batch(heap[0], -heap[0][0]):
                heapq.heappop(heap)
            if not heap:
                return 0
            self._longest = -heap[0][0]
        return self.num_begun + self._longest

    @property
    def min_seq_len(self) -> int:
        """Tokens in KV of the shortest row; 0 without rows."""
        if self._shortest is None:
            heap = self._shortest_heap
            while heap and not self._is_in_batch(heap[0], heap[0][0]):
                heapq.heappop(heap)
            if not heap:
                return 0
            self._shortest = heap[0][0]
        return self.num_begun + self._shortest

    # ---- composition ---------------------------------------------------------------------------

    def append(self, requests: Sequence[R], *, num_missed_steps: int = 0) -> None:
        """Add rows at the end.

        `num_missed_steps` steps in flight run without these rows. Each will increase `num_done` by
        one when it is done, so `num_generated` is lowered in advance.
        """
        self._set([*self.requests, *requests], joining=requests)
        if num_missed_steps:
            for request in requests:
                request.num_generated -= num_missed_steps
                self._note_limit(request)

    def prepend(self, requests: Sequence[R]) -> None:
        self._set([*requests, *self.requests], joining=requests)

    def remove(self, leaving: Collection[R]) -> None:
        if not leaving:
            return
        for request in leaving:
            if request.lockstep is not None:
                self.num_tokens -= request.seq_len
                self._num_rows_by_residue[request.seq_base % self._page_size] -= 1
                request.leave()
        if len(leaving) == 1:
            (gone,) = leaving
            self._set([request for request in self.requests if request is not gone])
        else:
            all_gone = set(leaving)
            self._set([request for request in self.requests if request not in all_gone])

    def reorder(self, requests: list[R]) -> None:
        """Put the same rows in another order."""
        self._set(requests)

    def _set(self, requests: list[R], joining: Sequence[R] = ()) -> None:
        self.requests = requests
        self.rids = RowNames(requests)
        self._reserved_key = self._demand = self._longest = self._shortest = None
        for request in joining:
            self.num_tokens += request.seq_len
            request.join(self)
            self._num_rows_by_residue[request.seq_base % self._page_size] += 1
            self._note_limit(request)
            self._note_length(request)

    def _note_length(self, request: R) -> None:
        # Outdated entries keep their requests in memory, and nobody may ask for the shortest row.
        most = _MOST_STALE + 2 * len(self.requests)
        if len(self._longest_heap) > most or len(self._shortest_heap) > most:
            rows = [entry for entry in self._longest_heap if self._is_in_batch(entry, -entry[0])]
            self._longest_heap = rows
            self._shortest_heap = [(-base, number, row) for base, number, row in rows]
            heapq.heapify(self._longest_heap)
            heapq.heapify(self._shortest_heap)
        heapq.heappush(self._longest_heap, (-request.seq_base, self._num_pushed, request))
        heapq.heappush(self._shortest_heap, (request.seq_base, self._num_pushed, request))

    def _note_limit(self, request: R) -> None:
        self._reserved_key = None
        self._num_pushed += 1
        if len(self._limit_heap) > _MOST_STALE + 2 * len(self.requests):
            self._limit_heap = [entry for entry in self._limit_heap if self._is_current(entry)]
            heapq.heapify(self._limit_heap)
        heapq.heappush(self._limit_heap, (request.limit_step, self._num_pushed, request))

    def reserved_tokens(self, clip: int, ratio: float, known_ratio: float = 1.0) -> float:
        """Tokens that admission reserves for the rows' further output.

        This is the sum over the rows of `ratio` times the tokens until the row's limit, at most
        `clip`. For rows that ignore end tokens it is `known_ratio` times. The rows are summed in
        batch order, because the order changes the rounding of a sum of floats.
        """
        key = (self.num_done, clip, ratio, known_ratio)
        if self._reserved_key != key:
            reserved, num_done = 0.0, self.num_done
            for request in self.requests:
                left = request.limit_step - num_done
                if left > clip:
                    left = clip
                reserved += left * (known_ratio if request.spec.ignore_eos else ratio)
            self._reserved, self._reserved_key = reserved, key
        return self._reserved

    # ---- advancing -----------------------------------------------------------------------------

    @property
    def num_new_pages(self) -> int:
        """New pages that the next step needs: one for each row whose last page is full."""
        return self._num_rows_by_residue[-self.num_begun % self._page_size]

    def page_demand(self) -> PageDemand:
        """The new pages that the next steps need. The batch must not be empty."""
        # The next step fills the pages of the rows of residue `first`, the one after it those of
        # residue `first` - 1, and so on, modulo the page size.
        if self._demand is None or self._demand_begun != self.num_begun:
            residues, first = self._num_rows_by_residue, -self.num_begun % self._page_size
            cycle = residues[first::-1] + residues[:first:-1]
            self._demand, self._demand_begun = PageDemand(cycle, len(self.requests)), self.num_begun
        return self._demand

    def begin_steps(self, num_steps: int = 1) -> None:
        self.num_begun += num_steps
        self.num_tokens += num_steps * len(self.requests)

    def finish_steps(self, num_steps: int = 1) -> None:
        self.num_done += num_steps

    def add_first_token(self, request: R) -> None:
        """Count the first token of a row that joined while its prefill was in flight."""
        request.num_generated += 1
        self._note_limit(request)

    def rows_at_limit(self, num_tokens_ahead: int = 0) -> list[R]:
        """Rows that reach `max_new_tokens` with at most `num_tokens_ahead` further tokens."""
        self._drop_stale()
        due = self.num_done + num_tokens_ahead
        heap = self._limit_heap
        if not heap or heap[0][0] > due:
            return []
        # The two entries below the top of the heap are the smallest of all the others.
        if all(entry[0] > due for entry in heap[1:3]):
            return [heap[0][2]]
        return [request for request in self.requests if request.limit_step <= due]

    @property
    def num_steps_to_limit(self) -> int:
        """Steps until a row reaches `max_new_tokens`. The batch must not be empty."""
        self._drop_stale()
        return self._limit_heap[0][0] - self.num_done

    def _drop_stale(self) -> None:
        heap = self._limit_heap
        while heap and not self._is_current(heap[0]):
            heapq.heappop(heap)

    def _is_current(self, entry: _Due[R]) -> bool:
        """Whether the entry's row is still in this batch and still has the entry's limit."""
        due, _, request = entry
        return request.lockstep is self and request.limit_step == due

    def _is_in_batch(self, entry: _Length[R], seq_base: int) -> bool:
        """Whether the entry's row is still in this batch and still has this `seq_base`."""
        request = entry[2]
        return request.lockstep is self and request.seq_base == seq_base
