"""The knee of made-up lines."""

import math

import numpy as np
import pytest

from sim.metrics.points import find_knee


def test_knee_of_a_bent_line_is_the_bend():
    """Steep until the fourth point, flat from there on; turned and mirrored too."""
    x, y = [0, 1, 2, 3, 8, 13, 18], [0, 10, 20, 30, 31, 32, 33]
    for knee in (find_knee(x, y), find_knee(y, x), find_knee(x, [-value for value in y])):
        assert knee.index == 3
        assert 0.5 < knee.distance < 0.55


def test_knee_of_a_quarter_circle_is_its_middle():
    """As far from the chord as a circle is: 1 - 1 / sqrt(2)."""
    angles = np.linspace(0, math.pi / 2, 9)
    knee = find_knee(np.sin(angles).tolist(), (5 - 3 * np.cos(angles)).tolist())
    assert knee.index == 4
    assert knee.distance == pytest.approx(1 - math.sqrt(0.5))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([0, 1, 2, 3], [5, 7, 9, 11]),
        ([0, 1, 2, 3], [0, 1.2, 2.1, 3]),
        ([0, 1, 2, 3], [4, 4, 4, 4]),
        ([0, 1, 2], [0, 9, 0]),
        ([0, 5], [0, 9]),
        ([], []),
    ],
    ids=["straight", "nearly straight", "flat", "there and back", "two points", "nothing"],
)
def test_knee_of_a_line_that_does_not_bend_is_none(x, y):
    """Nor has one that ends where it began, or is too short to bend."""
    assert find_knee(x, y) is None


def test_knee_no_farther_from_the_chord_than_its_error_is_none():
    """What the seeds do not agree on is no bend; errors along the chord do not matter."""
    x, y = [0, 1, 10], [0, 5, 10]
    assert find_knee(x, y, y_errors=[0, 1, 0]).index == 1
    assert find_knee(x, y, y_errors=[0, 5, 0]) is None
    assert find_knee(x, y, y_errors=[5, 1, 5]).index == 1


def test_knee_is_on_the_better_side():
    """A setting that is worse in both is farther from the chord; it is no knee."""
    ttft_ms, hits = [215, 290, 210, 315], [76, 74, 79, 80]
    assert find_knee(ttft_ms, hits).index == 1
    knee = find_knee(ttft_ms, hits, better=(-1, 1))
    assert knee.index == 2
    assert find_knee(hits, ttft_ms, better=(1, -1)) == knee


def test_knee_where_nothing_is_traded_is_none():
    """The last setting is better in both than the first."""
    x, y = [300, 200, 100], [70, 79, 80]
    assert find_knee(x, y).index == 1
    assert find_knee(x, y, better=(-1, 1)) is None
