"""A server's KV memory as an engine sees it, and the pool of its pages.

A pool comes in two forms: with page ids for a real runner, with counts for a simulator. Decisions
depend on the number of free pages alone, so both forms lead to the same schedule.
"""

from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sim.core.errors import InvariantError


class Span(Protocol):
    """An ordered run of pages that belong together. Opaque: count, cut, join."""

    def __len__(self) -> int: ...

    def split(self, num_pages: int) -> tuple[Self, Self]:
        """The first `num_pages` pages and the rest."""
        ...

    def concat(self, other: Self) -> Self: ...


S = TypeVar("S", bound=Span)


class PagePool(Protocol[S]):
    """Owner of all pages. Pages are either free, promised, or out in spans.

    `promise` takes pages off the free count at once; `redeem` says later which ones. A simulator
    that skips many decode steps promises their pages in bulk and redeems when a request ends.
    """

    page_size: int
    num_pages: int

    @property
    def num_free_pages(self) -> int: ...

    @property
    def empty(self) -> S: ...

    def promise(self, num_pages: int) -> None:
        """Take pages off the free count. Raises InvariantError if there are too few."""
        ...

    def redeem(self, num_pages: int) -> S:
        """Turn promised pages into a span. Raises InvariantError if fewer were promised."""
        ...

    def free(self, span: S) -> None: ...


class PageCount:
    """A span that knows only how many pages it has. Never changed."""

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
    """A pool that counts pages and does not name them."""

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
            raise InvariantError(f"{span.num_pages} pages freed that were free already")


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
    """A pool that names its pages 0 to num_pages - 1. Lowest free ids first, freed ids last."""

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


class KVMemory:
    """A base class. Token counts are multiples of the page size.

    Attributes:
        page_size: tokens a page (a block, as some engines say).
        num_pages: pages of the pool.
    """

    page_size: int
    num_pages: int

    @property
    def num_free_pages(self) -> int:
        """Pages that can be had without evicting what `evictable_tokens` counts."""
        raise NotImplementedError

    @property
    def evictable_tokens(self) -> int:
        """Cached tokens that no request uses, and that are not among the free ones."""
        raise NotImplementedError

    @property
    def host_used_tokens(self) -> int | None:
        """Tokens in host memory; None: there is no host tier."""
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
        """Take pages off the free ones for decode steps; which rows get them is settled later."""
        raise NotImplementedError
