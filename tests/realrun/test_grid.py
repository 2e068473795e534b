"""The grid of compositions is within the limits, and even after any number of points."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from realrun.profiling.composition import Composition, GridLimits
from realrun.profiling.grid import decode, extend, grid, levels, mixed, spread, straggler
from sim.core.batch import ForwardMode
from sim.latency.architectures.model_key import load_model_shape

GPT2_ON_A_GPU = GridLimits(
    page_size=16, num_pages=256 * 64, max_rows=256, max_context=1024, max_new_tokens=8192
)

limits = st.builds(
    GridLimits,
    page_size=st.sampled_from([1, 16, 64]),
    num_pages=st.integers(1, 3000),
    max_rows=st.integers(1, 300),
    max_context=st.integers(1, 5000),
    max_new_tokens=st.integers(1, 8192),
)


@given(limits)
def test_grid_of_any_limits_stays_within_them(given_limits):
    """Pool, rows, positions and new tokens suffice for every composition, and none is empty."""
    compositions = [point for points in grid(given_limits) for point in points]
    assert len(set(compositions)) == len(compositions)
    for point in compositions:
        assert given_limits.allow(point)
        assert point.num_rows == len(point.kv_lens) == len(point.query_lens) >= 1
        assert all(
            1 <= new <= length for new, length in zip(point.query_lens, point.kv_lens, strict=True)
        )


@given(limits)
def test_grid_round_0_has_the_smallest_and_the_longest_decodes(given_limits):
    """One row of the longest context that fits, and of the shortest, are measured first."""
    rounds = grid(given_limits)
    fitting = min(given_limits.max_context, given_limits.num_pages * given_limits.page_size)
    first, *_ = [single_rows(points) for points in rounds] or [[]]
    longest = [context for points in rounds for context in single_rows(points)]
    if longest:
        assert {min(longest), max(longest)} <= set(first)
        assert fitting / 2 < max(longest) <= fitting


def single_rows(points):
    """Contexts of the compositions of one decode row."""
    decodes = [point.decode_contexts for point in points if point.mode is ForwardMode.DECODE]
    return [contexts[0] for contexts in decodes if len(contexts) == 1]


def test_grid_round_0_covers_every_corner():
    """Fewest and most rows, shortest and longest contexts, of every mode, in the coarsest grid."""
    first = grid(GPT2_ON_A_GPU)[0]
    corners = [decode(1, 16), decode(256, 16), decode(1, 1024), decode(256, 1024)]
    corners += [extend(1, 1, 0), extend(1, 1, 768), extend(1, 1024, 0), extend(32, 8192, 0)]
    corners += [mixed(1, 16, 1, 0, 64), mixed(1, 16, 255, 0, 1024), mixed(1, 16, 1, 768, 64)]
    assert set(corners) <= set(first)


def test_grid_rounds_grow_finer():
    """The first rounds are small: a short budget sees both ends of everything."""
    sizes = [len(points) for points in grid(GPT2_ON_A_GPU)]
    assert sizes[0] < sum(sizes) / 5
    assert all(sizes)


def test_grid_has_few_values_of_each_axis():
    """So that a fit can make a table of them rather than pick some."""
    points = [point for points in grid(GPT2_ON_A_GPU) for point in points]
    decodes = [point for point in points if point.mode is ForwardMode.DECODE]
    extends = [point for point in points if point.mode is ForwardMode.EXTEND]
    assert len({point.num_rows for point in decodes}) <= 24
    assert len({point.num_context_tokens / point.num_rows for point in decodes}) <= 24
    assert len({point.num_new_tokens for point in extends}) <= 24


@given(st.integers(1, 40))
def test_levels_halve_the_steps(num_values):
    """Ends first; whatever round an axis is cut off at, the gaps differ by at most one place."""
    found = levels(num_values)
    assert found[0] == found[-1] == 0
    for level in range(max(found) + 1):
        places = [place for place, own in enumerate(found) if own <= level]
        gaps = [after - before for before, after in pairwise(places)]
        assert not gaps or max(gaps) <= 2 * min(gaps)


@given(st.integers(2, 300), st.integers(1, 5000))
def test_uneven_contexts_keep_their_mean(num_rows, mean):
    """Rows of unequal contexts have the total of equal ones, and a longer longest."""
    for uneven in (spread(num_rows, mean), straggler(num_rows, mean)):
        assert uneven.num_rows == num_rows
        assert uneven.num_context_tokens == num_rows * mean
        assert max(uneven.decode_contexts) >= mean


def test_composition_says_what_it_is_made_of():
    """Rows, tokens and pages of a prefill row behind a prefix and two decode rows."""
    point = Composition(prefill=((32, 20),), decode_contexts=(5, 17))
    assert point.mode is ForwardMode.MIXED
    assert (point.query_lens, point.kv_lens) == ([20, 1, 1], [52, 5, 17])
    assert (point.num_new_tokens, point.num_context_tokens) == (22, 74)
    assert point.num_pages(16) == 4 + 1 + 2


def test_composition_flops_of_a_token_are_twice_the_parameters(tmp_path):
    """Attention to a single token hardly counts."""
    shape = load_model_shape("gpt2", tmp_path)
    assert 1 <= decode(1, 1).flops(shape) / (2 * shape.num_parameters) < 1.001


def test_composition_is_at_least_a_smaller_one_of_its_kind_only():
    """What was refused for want of memory rules out what needs as much or more."""
    assert decode(8, 100).is_at_least(decode(4, 100))
    assert not decode(8, 100).is_at_least(decode(4, 400))
    assert not decode(8, 100).is_at_least(extend(1, 8, 0))
