"""Runs of decode steps of the same rows, which are passed at once.

Without drafts each row gets one token in each step. With drafts, a simulation knows before how many
of them the next steps accept (`sim.engine.row_executor`). So it knows how long each row will be,
and what memory each step takes.

Example: two rows verify three drafts each. 10 and 20 tokens of them are computed when the next step
is decided, and the results of the next three steps give the rows 3 and 1, 1 and 2, 4 and 1 tokens:

    step                      0         1         2         3
    computed before it        10, 20    13, 21    14, 23    18, 24
    contexts, with 1 + 3      14, 24    17, 25    18, 27    22, 28
    `DraftRun.contexts`       38        42        45        50
    `DraftRun.longest`        24        25        27        28

Under overlap a step is decided before the result of the one before it is known. Then the rows are
as long as one step earlier: step 1 is decided as step 0 was.
"""

from typing import Final

import numpy as np

from sim.core.arrays import Int64


class PageDemand:
    """The new pages that the next decode steps need.

    A row needs a new page whenever its last page is full. So the demand repeats every `page_size`
    steps.

    Attributes:
        cycle: number of new pages in each of the next `page_size` steps.
    """

    def __init__(self, cycle: list[int], num_rows: int) -> None:
        self.cycle = cycle
        self._num_rows = num_rows

    def num_affordable(self, num_steps: int, free_pages: int, *, spares: bool) -> int:
        """How many of the next steps can be taken before free pages run out.

        At most `num_steps`; there are `free_pages` before the first. With `spares` each step must
        find one free page for every row, even for rows that need none.
        """
        page_size, num_rows = len(self.cycle), self._num_rows
        # A whole cycle takes one page for each row.
        num_cycles = max(free_pages // num_rows - spares, 0)
        step, free = num_cycles * page_size, free_pages - num_cycles * num_rows
        while step < num_steps:
            new_pages = self.cycle[step % page_size]
            if free < (num_rows if spares else new_pages):
                return step
            free -= new_pages
            step += 1
        return num_steps

    def after(self, num_steps: int) -> tuple[int, int]:
        """The number of new pages after `num_steps` steps, and its sum over the steps.

        If 3 steps need 1, 0 and 2 new pages, there are 1 new page after the first step, 1 after the
        second and 3 after the third. The result is (3, 5).
        """
        page_size = len(self.cycle)
        total = summed = 0
        for offset in range(min(num_steps, page_size)):
            new_pages = self.cycle[offset]
            if new_pages:
                left = num_steps - offset
                times = -(-left // page_size)
                total += new_pages * times
                summed += new_pages * (times * left - page_size * (times * (times - 1) // 2))
        return total, summed

    def after_each(self, num_steps: int) -> Int64:
        """Total of new pages after each of the next steps; shape [num_steps]."""
        return np.resize(np.array(self.cycle, dtype=np.int64), num_steps).cumsum()


class DecodeRun:
    """Several decode steps of the same rows: their effect on the pool and the new-token ratio.

    Attributes:
        last_free_tokens: free tokens after the last step began.
        free_token_steps: free tokens after each step began, summed over the steps.
        ratio: the new-token ratio at each step.
        contexts: context length after each step, over all rows; None: each row grows by one token.
        evicted: tokens that the prefix cache has lost since the first step, after each step; None:
            nothing is evicted.
    """

    def __init__(
        self,
        num_steps: int,
        free_pages: int,
        page_size: int,
        demand: PageDemand,
        ratio: list[float],
        contexts: Int64 | None = None,
        evicted: Int64 | None = None,
    ) -> None:
        self.num_steps = num_steps
        self.ratio = ratio
        self.contexts = contexts
        self.evicted = evicted
        self._free_pages = free_pages
        self._page_size = page_size
        self._demand = demand
        self.num_pages, page_steps = demand.after(num_steps)
        self.last_free_tokens = (free_pages - self.num_pages) * page_size
        self.free_token_steps = (free_pages * num_steps - page_steps) * page_size
        if evicted is not None:
            self.last_free_tokens += int(evicted[-1])
            self.free_token_steps += int(evicted.sum())

    def free_tokens(self) -> Int64:
        """Free tokens after each step began; shape [num_steps]."""
        free = (self._free_pages - self._demand.after_each(self.num_steps)) * self._page_size
        return free if self.evicted is None else free + self.evicted

    def evictions(self) -> list[int]:
        """Tokens evicted since the first step, after each."""
        evicted: list[int] = [0] * self.num_steps
        return evicted if self.evicted is None else self.evicted.tolist()

    def contexts_after(self, num_tokens: int, num_rows: int) -> list[int]:
        """Context length after each step; it was `num_tokens` before the first."""
        contexts = [num_tokens + num_rows * (step + 1) for step in range(self.num_steps)]
        return contexts if self.contexts is None else self.contexts.tolist()


class DraftRun:
    """The steps, as they will be decided one after the other.

    Attributes:
        outputs: output tokens of each row now, and after each result that is taken in while the
            steps are decided; shape [num_rows, 1 + num_steps].
        contexts: context length after each step, summed over the rows; shape [num_steps].
        longest, shortest: that of the longest and of the shortest row; shape [num_steps].
        places: where each row's places for KV end; shape [num_rows, num_steps].
        new_places, new_pages: places and pages that each step allocates; shape [num_steps].
    """

    def __init__(
        self,
        outputs: Int64,
        places: Int64,
        *,
        contexts: Int64,
        longest: Int64,
        shortest: Int64,
        new_places: Int64,
        new_pages: Int64,
    ) -> None:
        self.outputs: Final = outputs
        self.places: Final = places
        self.contexts: Final = contexts
        self.longest: Final = longest
        self.shortest: Final = shortest
        self.new_places: Final = new_places
        self.new_pages: Final = new_pages

    @property
    def num_steps(self) -> int:
        return len(self.contexts)

    def first(self, num_steps: int) -> "DraftRun":
        """The first of these steps."""
        if num_steps == len(self.contexts):
            return self
        return DraftRun(
            self.outputs[:, : 1 + num_steps],
            self.places[:, :num_steps],
            contexts=self.contexts[:num_steps],
            longest=self.longest[:num_steps],
            shortest=self.shortest[:num_steps],
            new_places=self.new_places[:num_steps],
            new_pages=self.new_pages[:num_steps],
        )
