"""Pools of KV pages, and the base class of a family's KV memory.

There are two pools: `PageIds` knows every page's id, for the real runner; `PageCounts` only counts
pages, for the simulator. Decisions depend only on the number of free pages, so both pools lead to
the same schedule.
"""

from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from sim.core.errors import InvariantError


class Span(Protocol):
    """An ordered list of pages. Code that must work with both pools uses these methods alone."""

    def __len__(self) -> int: ...

    def split(self, num_pages: int) -> tuple[Self, Self]:
        """The first `num_pages` pages and the rest."""

    def concat(self, other: Self) -> Self: ...


S = TypeVar("S", bound=Span)


class PagePool(Protocol[S]):
    """All pages of a server. A page is free, promised, or in a span.

    `promise` reserves a number of free pages at once; `redeem` later turns them into a span. A
    simulator that fast-forwards many decode steps promises all their pages together, and redeems
    a request's pages when the request ends.
    """

    page_size: int
    num_pages: int

    @property
    def num_free_pages(self) -> int: ...

    @property
    def empty(self) -> S: ...

    def promise(self, num_pages: int) -> None:
        """Reserve free pages. Raises InvariantError if there are too few."""

    def redeem(self, num_pages: int) -> S:
        """Turn promised pages into a span. Raises InvariantError if fewer were promised."""

    def free(self, span: S) -> None: ...


class PageCount:
    """A span that only knows its number of pages. Immutable."""

    __slots__ = ("num_pages",)

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages

    def __len__(self) -> int:
        return self.num_pages

    def split(self, num_pages: int) -> tuple["PageCount", "PageCount"]:
        return PageCount(num_pages), PageCount(self.num_pages - num_pages)

    def concat(self, other: "PageCount") -> "PageCount":
        return PageCount(self.num_pages + other.num_pages)


_NO_PAGES = PageCount(0)


class PageCounts:
    """A pool that counts pages and gives them no ids."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.num_pages = num_pages
        self.num_free_pages = num_pages
        self._num_promised = 0
        self.empty = _NO_PAGES

    def promise(self, num_pages: int) -> None:
        if num_pages > self.num_free_pages:
            raise InvariantError(f"{num_pages} pages promised, {self.num_free_pages} free")
        self.num_free_pages -= num_pages
        self._num_promised += num_pages

    def redeem(self, num_pages: int) -> PageCount:
        if num_pages > self._num_promised:
            raise InvariantError(f"{num_pages} pages redeemed, {self._num_promised} promised")
        self._num_promised -= num_pages
        return PageCount(num_pages)

    def free(self, span: PageCount) -> None:
        self.num_free_pages += span.num_pages
        if self.num_free_pages + self._num_promised > self.num_pages:
            raise InvariantError(f"{span.num_pages} pages were freed, but some were free already")


@dataclass(frozen=True, slots=True, eq=False)
class PageIdSpan:
    """A span of page ids: int32, shape [num_pages]."""

    ids: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids)

    def split(self, num_pages: int) -> tuple["PageIdSpan", "PageIdSpan"]:
        return PageIdSpan(self.ids[:num_pages]), PageIdSpan(self.ids[num_pages:])

    def concat(self, other: "PageIdSpan") -> "PageIdSpan":
        return PageIdSpan(np.concatenate([self.ids, other.ids]))


class PageIds:
    """A pool of pages with ids 0 to num_pages - 1.

    At first the lowest ids are handed out. Freed ids go on a stack: the last freed page is the
    next one used.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.num_pages = num_pages
        self._num_promised = 0
        self._free_ids = list(range(num_pages - 1, -1, -1))
        self._is_free = np.ones(num_pages, dtype=np.bool_)
        self.empty = PageIdSpan(np.empty(0, dtype=np.int32))

    @property
    def num_free_pages(self) -> int:
        return len(self._free_ids) - self._num_promised

    def promise(self, num_pages: int) -> None:
        if num_pages > self.num_free_pages:
            raise InvariantError(f"{num_pages} pages promised, {self.num_free_pages} free")
        self._num_promised += num_pages

    def redeem(self, num_pages: int) -> PageIdSpan:
        if num_pages > self._num_promised:
            raise InvariantError(f"{num_pages} pages redeemed, {self._num_promised} promised")
        self._num_promised -= num_pages
        if not num_pages:
            return self.empty
        ids = np.array(self._free_ids[: -num_pages - 1 : -1], dtype=np.int32)
        del self._free_ids[-num_pages:]
        self._is_free[ids] = False
        return PageIdSpan(ids)

    def free(self, span: PageIdSpan) -> None:
        if self._is_free[span.ids].any():
            raise InvariantError(f"pages freed twice among {span.ids.tolist()}")
        self._is_free[span.ids] = True
        self._free_ids.extend(span.ids.tolist())


@mypyc_attr(allow_interpreted_subclasses=True)
class KVMemory:
    """Base class of a server's KV memory. All its token counts are multiples of the page size.

    Attributes:
        page_size: tokens in a page (some engines call a page a block).
        num_pages: pages of the pool.
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
    def pool_tokens(self) -> int:
        return self.num_pages * self.page_size

    @property
    def free_tokens(self) -> int:
        return self.num_free_pages * self.page_size

    def ceil_page(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_size) * self.page_size

    def floor_page(self, num_tokens: int) -> int:
        return num_tokens // self.page_size * self.page_size

    def promise_pages(self, num_pages: int) -> None:
        """Reserve free pages for decode steps; which row gets which page is decided later."""
        raise NotImplementedError
