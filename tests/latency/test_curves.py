"""Piecewise linear functions: at their points, between them, and beyond."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.latency.curves import Curve, between, bracket, weighted_sum

CURVE = Curve([16, 32, 64, 128], [10.0, 12.0, 20.0, 52.0])
KNOTS = st.lists(st.integers(0, 10**5), min_size=1, max_size=8, unique=True).map(sorted)


@st.composite
def curves(draw):
    knots = draw(KNOTS)
    size = len(knots)
    values = draw(st.lists(st.floats(0, 1e6), min_size=size, max_size=size))
    return Curve(knots, values, held=draw(st.booleans()))


def test_curve_meets_its_points():
    """The values at the knots are exact."""
    assert [CURVE.at(x) for x in (16, 32, 64, 128)] == [10.0, 12.0, 20.0, 52.0]


@pytest.mark.parametrize(("x", "value"), [(24, 11.0), (48, 16.0), (40, 14.0), (96, 36.0)])
def test_curve_is_straight_between_two_points(x, value):
    """In the size itself, not in its logarithm: 40 lies a quarter of the way from 32 to 64."""
    assert CURVE.at(x) == value


def test_curve_goes_on_along_its_first_segment_and_its_last_doubling():
    """Half a token less costs a sixteenth of a microsecond less; 128 more cost twice 32."""
    assert CURVE.at(8) == 9.0
    assert CURVE.at(256) == 52.0 + 2 * 32.0


def test_curve_on_a_fine_grid_goes_on_by_the_line_from_half_its_size():
    """Its last two points are of one kernel tile: their slope says nothing of larger sizes."""
    curve = Curve([512, 1024, 2032, 2048], [10.0, 20.0, 40.0, 40.0])
    assert curve.at(4096) == 40.0 + 2048 * 20.0 / 1024


def test_curve_is_never_negative():
    """A falling curve ends at 0, on either side."""
    assert Curve([10, 20], [2.0, 1.0]).at(100) == 0.0
    assert Curve([10, 20], [1.0, 5.0]).at(0) == 0.0
    assert Curve([10, 20], [2.0, 1.0]).at_many(np.array([100.0])).tolist() == [0.0]


def test_curve_of_one_point_is_constant():
    """There is no slope to go by."""
    assert [Curve([10], [3.0]).at(x) for x in (0, 10, 99)] == [3.0] * 3


def test_held_curve_keeps_its_end_values():
    """Below its first knot and above its last one; between them it is straight."""
    held = Curve([10, 20], [2.0, 1.0], held=True)
    assert [held.at(x) for x in (0, 10, 15, 20, 99)] == [2.0, 2.0, 1.5, 1.0, 1.0]


@given(curves(), st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_curve_at_many_equals_at_one(curve, sizes):
    """Both ways give the same bits."""
    assert curve.at_many(np.array(sizes)).tolist() == [curve.at(x) for x in sizes]


def test_weighted_sum_has_the_knots_of_all_its_parts():
    """Twice one curve and thrice another, of other knots; between them still straight."""
    one, other = Curve([0, 10], [0.0, 10.0]), Curve([0, 4, 10], [0.0, 0.0, 6.0])
    total = weighted_sum([(2, one), (3, other)])
    assert total.knots == [0, 4, 10]
    assert [total.at(x) for x in (0, 4, 7, 10, 20)] == [0.0, 8.0, 14.0 + 9.0, 38.0, 40.0 + 48.0]


def test_curve_between_two_others():
    """A quarter of the way, and beyond the second."""
    low, high = Curve([0, 10], [0.0, 10.0]), Curve([0, 10], [4.0, 30.0])
    assert between(low, high, 0.25).at(10) == 15.0
    assert between(low, high, 2.0).at(10) == 50.0


@pytest.mark.parametrize(
    ("x", "found"),
    [
        (1, (0, 0, 0.0)),
        (3, (1, 2, 0.5)),
        (0, (0, 1, -1.0)),
        (8, (3, 3, 0.0)),
        (12, (2, 3, 2.0)),
    ],
)
def test_bracket_of_a_size_among_knots(x, found):
    """A knot is taken alone, so that a table's own points come out exactly."""
    assert bracket([1, 2, 4, 8], x) == found


def test_bracket_among_one_knot_is_that_knot():
    """For every size."""
    assert bracket([5], 1) == bracket([5], 5) == bracket([5], 9) == (0, 0, 0.0)
