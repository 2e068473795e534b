"""The search for the cheapest numbers of prefill and decode servers."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from sim.sweep.capacity.candidates import Candidate, Decoders
from sim.sweep.capacity.sizes import Splits

LIMIT = 24


def candidate(gpus, loads, max_gpus=None):
    decoders = Decoders(degrees={}, num_gpus=gpus[1], loads=loads, settings={})
    return Candidate(
        number=0, gpu="any", family="sglang", degrees={}, tried={}, settings={},
        num_gpus=gpus[0], price_per_hour=None, max_replicas=LIMIT, max_gpus=max_gpus,
        decoders=decoders,
    )  # fmt: skip


def searched(search, does):
    """Try until nothing is left; returns the sizes that were tried."""
    tried = []
    while trials := search.next_trials:
        least = search.candidate.cost(search.best_possible)
        for size in trials:
            assert size not in tried
            assert search.candidate.cost(size) >= least
            tried.append(size)
            search.tell(size, holds=does(size))
    return tried


@given(
    st.tuples(st.integers(1, 8), st.integers(1, 8)),
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4),
    st.tuples(st.floats(0.5, 1), st.floats(0.5, 1)),
)
def test_search_finds_the_cheapest_size_that_does(gpus, corners, shares):
    """Whatever does with some numbers does with more; the loads only say where to begin."""
    least = [min(sizes) for sizes in zip(*corners, strict=True)]
    loads = tuple(share * num for share, num in zip(shares, least, strict=True))

    def does(size):
        return any(size[0] >= fill and size[1] >= decode for fill, decode in corners)

    one = candidate(gpus, loads)
    search = Splits(one)
    tried = searched(search, does)
    assert search.best == search.best_possible
    assert does(search.best)
    sizes = [size for size in product(range(1, LIMIT), repeat=2) if sum(size) <= LIMIT]
    assert one.cost(search.best) == min(one.cost(size) for size in sizes if does(size))
    assert len(tried) < len(sizes)


def test_nothing_is_tried_beyond_the_limits():
    """Traffic that keeps more servers busy than there may be needs no trial."""
    search = Splits(candidate((1, 1), (40.0, 1.0)))
    assert search.next_trials == []
    assert search.best is None
    search = Splits(candidate((2, 4), (1.0, 1.0), max_gpus=12))
    tried = searched(search, lambda size: False)
    assert tried
    assert all(2 * fill + 4 * decode <= 12 for fill, decode in tried)
