"""Exponents of cost against size."""

import pytest

from bench.fit import exponent
from sim.core.errors import InputError


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5])
def test_exponent_of_a_power_law_is_its_power(power):
    """Whatever the constant."""
    sizes = [1, 2, 4, 8]
    assert exponent(sizes, [3.7 * size**power for size in sizes]) == pytest.approx(power)


def test_exponent_of_scattered_costs_is_the_least_squares_slope():
    """In the logarithms, as numpy fits it."""
    numpy = pytest.importorskip("numpy")
    sizes, costs = [250, 500, 1000, 2000], [2.0, 1.7, 3.9, 3.1]
    slope, _ = numpy.polyfit(numpy.log(sizes), numpy.log(costs), 1)
    assert exponent(sizes, costs) == pytest.approx(slope)


@pytest.mark.parametrize(("sizes", "costs"), [([4], [1.0]), ([4, 4], [1.0, 2.0]), ([1, 2], [0, 1])])
def test_exponent_of_too_little_is_refused(sizes, costs):
    """One size has no slope, and no cost has no logarithm."""
    with pytest.raises(InputError, match="no exponent"):
        exponent(sizes, costs)
