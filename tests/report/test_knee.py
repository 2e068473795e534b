"""The knee of a trade-off is its bend, and only if there is one."""

import math

import pytest

from sim.report.knee import knee


def test_knee_of_right_angle_is_its_corner():
    """All of the benefit first, all of the cost after."""
    assert knee([1, 1, 1, 2, 3], [60, 62, 64, 64, 64]) == 2


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_knee_does_not_depend_on_units(scale):
    """Seconds or nanoseconds, shares or percent."""
    costs = [scale * cost for cost in (10, 11, 13, 20, 40)]
    assert knee(costs, [1, 5, 8, 9, 9.5]) == 2


def test_knee_of_quarter_circle_is_its_middle():
    """The point where it runs as the chord does."""
    degrees = range(0, 91, 15)
    costs = [1 - _cos(angle) for angle in degrees]
    benefits = [_cos(90 - angle) for angle in degrees]
    assert knee(costs, benefits) == 3


def test_knee_is_the_same_point_when_the_sweep_runs_the_other_way():
    """From much benefit down to little."""
    costs, benefits = [10, 11, 13, 20, 40], [1, 5, 8, 9, 9.5]
    assert knee(costs[::-1], benefits[::-1]) == 2


@pytest.mark.parametrize(
    ("costs", "benefits"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40]),
        ([1, 2, 3, 4], [10, 20.5, 30.5, 40]),
        ([1, 3.8, 3.9, 4], [10, 11, 12, 40]),
    ],
    ids=["straight", "nearly straight", "bent to the worse side"],
)
def test_curve_that_does_not_bend_to_the_better_has_no_knee(costs, benefits):
    """No setting between the ends stands out."""
    assert knee(costs, benefits) is None


@pytest.mark.parametrize(
    ("costs", "benefits"),
    [
        ([], []),
        ([1, 2], [1, 2]),
        ([1, 1, 1], [5, 6, 7]),
        ([1, 2, 3], [5, 5, 5]),
        ([3, 2, 1], [5, 6, 7]),
    ],
    ids=["nothing", "two points", "free", "useless", "better at both"],
)
def test_ends_that_trade_nothing_have_no_knee(costs, benefits):
    """There is nothing to balance."""
    assert knee(costs, benefits) is None


def test_knee_of_unequal_lengths_is_an_error():
    """A cost without a benefit is a caller's mistake."""
    with pytest.raises(ValueError, match="zip"):
        knee([1, 2, 3], [1, 2])


def _cos(degrees: float) -> float:
    return math.cos(math.radians(degrees))
