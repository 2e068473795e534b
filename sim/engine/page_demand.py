"""Pages that the next decode steps of a batch start, without looking at its rows."""

import numpy as np
from numpy.typing import NDArray


class PageDemand:
    """A row starts a page each time its last one is full, so demand repeats with the page size.

    Attributes:
        cycle: pages that each of the next `page_size` steps starts.
    """

    def __init__(self, cycle: list[int], num_rows: int) -> None:
        self.cycle = cycle
        self._num_rows = num_rows

    def num_affordable(self, num_steps: int, free_pages: int, *, spares: bool) -> int:
        """How many of the next steps find their pages free.

        Args:
            num_steps: most of them.
            free_pages: before the first.
            spares: a step is to find a page for every row free, whether it needs it or not.
        """
        page_size, num_rows = len(self.cycle), self._num_rows
        # Each whole cycle takes one page a row.
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
        """Pages started by so many steps, and that number summed over the steps."""
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

    def after_each(self, num_steps: int) -> NDArray[np.int64]:
        """Pages started by each of the next steps and those before it; int64, [num_steps]."""
        return np.resize(np.array(self.cycle, dtype=np.int64), num_steps).cumsum()
