"""Pools of KV pages, and who hears what prefix caches hold.

There are two pools: `PageIds` knows every page's id, for the real runner; `PageCounts` only counts
pages, for the simulator. Decisions depend only on the number of free pages, so both pools lead to
the same schedule.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sim.core.errors import InvariantError
from sim.core.tokens import TokenIds

# Returns the keys of a prompt's full blocks as a cache makes them, one for each block.
KeysOf = Callable[[TokenIds], list[int]]


class CacheListener(Protocol):
    """Is told what one tier of a prefix cache holds; at first it holds nothing.

    These are the events BlockStored and BlockRemoved of real engines. SGLang 0.5.23 defines them in
    disaggregation/kv_events.py, vLLM 0.33.0 in distributed/kv_events.py. A block is a page of
    SGLang's, a block of vLLM's. It is named by a key that stands for all tokens up to its end
    (`sim.core.tokens`). Tiers are the device, host memory, and a store.
    """

    def stored(self, keys: list[int]) -> None:
        """Blocks with these keys are in the tier now; some may have been there before."""

    def removed(self, keys: list[int]) -> None:
        """The tier holds the blocks with these keys no more."""


class CountedKeys:
    """Tells a listener of blocks of which several may have the same key.

    It hears of the first block of a key that comes, and of the last one that goes.
    """

    def __init__(self, listener: CacheListener) -> None:
        self._listener = listener
        self._num_equal: dict[int, int] = {}

    def add(self, keys: list[int]) -> None:
        num_equal, new = self._num_equal, []
        for key in keys:
            number = num_equal.get(key, 0)
            num_equal[key] = number + 1
            if not number:
                new.append(key)
        if new:
            self._listener.stored(new)

    def remove(self, keys: list[int]) -> None:
        gone = []
        for key in keys:
            self._num_equal[key] -= 1
            if not self._num_equal[key]:
                del self._num_equal[key]
                gone.append(key)
        if gone:
            self._listener.removed(gone)


class Span:
    """Base class of an ordered list of pages. Immutable.

    Code that must work with both pools uses only what is here.
    """

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages

    def __len__(self) -> int:
        return self.num_pages

    def split(self, num_pages: int) -> "tuple[Span, Span]":
        """The first `num_pages` pages and the rest."""
        raise NotImplementedError

    def concat(self, other: "Span") -> "Span":
        raise NotImplementedError


class PagePool:
    """All pages of a server; base class of both pools. A page is free, reserved, or in a span.

    `reserve` sets a number of free pages aside, and `take_reserved` later turns them into a span. A
    simulator that fast-forwards many decode steps reserves all their pages together, and makes a
    span of a request's pages when the request ends.

    Attributes:
        empty: a span without pages.
    """

    def __init__(self, num_pages: int, page_size: int, empty: Span) -> None:
        self.page_size = page_size
        self.num_pages = num_pages
        self.num_free_pages = num_pages
        self.empty = empty
        self._num_reserved = 0

    def reserve(self, num_pages: int) -> None:
        """Reserve free pages. Raises InvariantError if there are too few."""
        if num_pages > self.num_free_pages:
            raise InvariantError(f"{num_pages} pages reserved, {self.num_free_pages} free")
        self.num_free_pages -= num_pages
        self._num_reserved += num_pages

    def take_reserved(self, num_pages: int) -> Span:
        """Turn reserved pages into a span. Raises InvariantError if fewer are reserved."""
        if num_pages > self._num_reserved:
            raise InvariantError(f"{num_pages} pages taken, {self._num_reserved} reserved")
        self._num_reserved -= num_pages
        return self._take(num_pages) if num_pages else self.empty

    def free(self, span: Span) -> None:
        """Free the pages of a span. Raises InvariantError if some are free already."""
        self.num_free_pages += span.num_pages
        if self.num_free_pages + self._num_reserved > self.num_pages:
            raise InvariantError(f"{span.num_pages} pages were freed, but some were free already")

    def _take(self, num_pages: int) -> Span:
        raise NotImplementedError


class PageCount(Span):
    """A span that only knows its number of pages."""

    def split(self, num_pages: int) -> tuple[Span, Span]:
        return PageCount(num_pages), PageCount(self.num_pages - num_pages)

    def concat(self, other: Span) -> Span:
        return PageCount(self.num_pages + other.num_pages)


class PageCounts(PagePool):
    """A pool that counts pages and gives them no ids."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        super().__init__(num_pages, page_size, PageCount(0))

    def _take(self, num_pages: int) -> Span:
        return PageCount(num_pages)


class PageIdSpan(Span):
    """A span of page ids: int32, shape [num_pages]."""

    def __init__(self, ids: NDArray[np.int32]) -> None:
        super().__init__(len(ids))
        self.ids = ids

    def split(self, num_pages: int) -> tuple[Span, Span]:
        return PageIdSpan(self.ids[:num_pages]), PageIdSpan(self.ids[num_pages:])

    def concat(self, other: Span) -> Span:
        return PageIdSpan(np.concatenate([self.ids, page_ids(other)]))


def page_ids(span: Span) -> NDArray[np.int32]:
    """The ids of a span's pages. Raises InvariantError if it has none."""
    if not isinstance(span, PageIdSpan):
        raise InvariantError("these pages are only counted")
    return span.ids


class PageIds(PagePool):
    """A pool of pages with ids 0 to num_pages - 1.

    At first the lowest ids are handed out. Freed ids go on a stack: the last freed page is the
    next one used.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        super().__init__(num_pages, page_size, PageIdSpan(np.empty(0, dtype=np.int32)))
        self._free_ids = list(range(num_pages - 1, -1, -1))
        self._is_free = np.ones(num_pages, dtype=np.bool_)

    def _take(self, num_pages: int) -> Span:
        ids = np.array(self._free_ids[: -num_pages - 1 : -1], dtype=np.int32)
        del self._free_ids[-num_pages:]
        self._is_free[ids] = False
        return PageIdSpan(ids)

    def free(self, span: Span) -> None:
        ids = page_ids(span)
        if self._is_free[ids].any():
            raise InvariantError(f"pages freed twice among {ids.tolist()}")
        super().free(span)
        self._is_free[ids] = True
        self._free_ids.extend(ids.tolist())
