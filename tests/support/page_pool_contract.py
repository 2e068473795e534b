"""What every page pool promises."""

from collections.abc import Callable

import numpy as np

from sim.core.errors import InvariantError
from sim.engine.page_pool import PagePool, Span


def raises_invariant(action: Callable[[], object]) -> bool:
    """Whether the call raises InvariantError."""
    try:
        action()
    except InvariantError:
        return True
    return False


def page_ids(span: Span) -> list[int] | None:
    """The ids of the pages; None if spans of this kind have none."""
    ids = getattr(span, "ids", None)
    return None if ids is None else ids.tolist()


class PagePoolContract:
    """Fixture `make_pool: Callable[[int, int], PagePool]`, called with `(num_pages, page_size)`."""

    def test_pool_reserve_take_free_conserves_pages(
        self, make_pool: Callable[[int, int], PagePool]
    ) -> None:
        """Free, reserved and handed out pages add up to the pool, whatever the order of calls."""
        rng = np.random.default_rng(1)
        pool = make_pool(40, 4)
        num_reserved, spans = 0, [pool.empty]
        for _ in range(400):
            num_pages = int(rng.integers(0, 9))
            action = rng.integers(0, 3)
            if action == 0 and num_pages <= pool.num_free_pages:
                pool.reserve(num_pages)
                num_reserved += num_pages
            elif action == 1 and num_pages <= num_reserved:
                spans.append(pool.take_reserved(num_pages))
                assert len(spans[-1]) == num_pages
                num_reserved -= num_pages
            elif action == 2 and spans:
                pool.free(spans.pop(int(rng.integers(0, len(spans)))))
            assert pool.num_free_pages + num_reserved + sum(map(len, spans)) == 40
            ids = [page for span in spans for page in page_ids(span) or ()]
            assert len(set(ids)) == len(ids)
        assert (pool.num_pages, pool.page_size) == (40, 4)

    def test_pool_too_much_asked_raises(self, make_pool: Callable[[int, int], PagePool]) -> None:
        """Reserving more than is free, taking more than reserved, freeing pages twice."""
        pool = make_pool(5, 1)
        assert raises_invariant(lambda: pool.reserve(6))
        pool.reserve(2)
        assert raises_invariant(lambda: pool.reserve(4))
        assert raises_invariant(lambda: pool.take_reserved(3))
        span = pool.take_reserved(2)
        assert raises_invariant(lambda: pool.take_reserved(1))
        assert pool.num_free_pages == 3
        pool.free(span)
        assert raises_invariant(lambda: pool.free(span))

    def test_span_cut_anywhere_joins_to_the_same(
        self, make_pool: Callable[[int, int], PagePool]
    ) -> None:
        """`split` and then `concat` restore the length and the order of ids."""
        pool = make_pool(7, 1)
        pool.reserve(7)
        span = pool.take_reserved(7)
        for cut in range(8):
            head, tail = span.split(cut)
            assert (len(head), len(tail)) == (cut, 7 - cut)
            assert len(head.concat(tail)) == 7
            assert page_ids(head.concat(tail)) == page_ids(span)
        assert len(pool.empty) == 0
        assert page_ids(pool.empty.concat(span)) == page_ids(span)
