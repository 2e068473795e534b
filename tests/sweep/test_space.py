"""Axes of a search: their values, and the positions of these."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sim.scenario.search_sections import Range
from sim.sweep.tune.space import Continuous, Countable, Space, axis_of

RANGE = TypeAdapter(Range)

# A range, how many values it has (None: infinitely many), some values, some non-values.
RANGES = [
    ({"kind": "int", "min": 3, "max": 10}, 8, [3, 10, 7.0], [2, 11, 3.5, True, "3", None]),
    ({"kind": "int", "min": 3, "max": 10, "step": 3}, 3, [3, 6, 9], [10, 12, 4]),
    ({"kind": "uniform", "min": 0.1, "max": 0.3, "step": 0.1}, 3, [0.1, 0.2, 0.3], [0.15, 0.4]),
    ({"kind": "uniform", "min": 0.5, "max": 2}, None, [0.5, 2, 1.234], [0.4, 2.1, False]),
    ({"kind": "loguniform", "min": 0.01, "max": 1}, None, [0.01, 1, 0.3], [0, 1.1, None]),
    ({"kind": "choice", "values": ["lpm", None, 4]}, 3, ["lpm", None, 4.0], ["fcfs", True]),
]


@pytest.mark.parametrize(("described", "num_values", "inside", "outside"), RANGES)
def test_axis_knows_what_lies_on_it(described, num_values, inside, outside):
    """Every value has one place, and a place gives its value back."""
    axis = axis_of(RANGE.validate_python(described))
    assert (axis.num_values if isinstance(axis, Countable) else None) == num_values
    for value in inside:
        assert axis.value(axis.place(value)) == value
    assert [axis.place(value) for value in outside] == [None] * len(outside)


@given(
    st.integers(-(10**6), 10**6), st.integers(0, 10**6), st.integers(1, 10**4), st.integers(0, 99)
)
def test_stepped_numbers_are_the_smallest_and_whole_steps(low, width, step, some):
    """None leaves the range, the next one would, and whole numbers stay whole."""
    axis = axis_of(
        RANGE.validate_python({"kind": "int", "min": low, "max": low + width, "step": step})
    )
    last = axis.value(axis.num_values - 1)
    assert last <= low + width < last + step
    place = some % axis.num_values
    assert axis.value(place) == low + place * step
    assert isinstance(axis.value(place), int)


def test_numbers_in_ascending_order_are_a_scale():
    """There neighbours tell of each other; of names, flags or unordered numbers they do not."""
    listed = [[1, 2, 4], [1, 4, 2], ["a", "b"], [False, True], [3]]
    axes = [axis_of(RANGE.validate_python({"kind": "choice", "values": v})) for v in listed]
    assert [axis.is_scale for axis in axes] == [True, False, False, False, False]


def test_space_lists_every_setting_once():
    """The product of what can be counted; with anything else it is beyond counting."""
    space = Space({"a": Countable(2, True), "b": Countable(3, False, values=("x", "y", "z"))})
    settings = [space.settings(places) for places in space.all_places()]
    assert space.num_settings == len(settings) == 6
    assert settings[:4] == [
        {"a": 0, "b": "x"},
        {"a": 0, "b": "y"},
        {"a": 0, "b": "z"},
        {"a": 1, "b": "x"},
    ]
    assert [space.places(setting) for setting in settings] == list(space.all_places())
    assert space.places({"a": 2, "b": "x"}) is None
    assert Space({**space.axes, "c": Continuous(0.0, 1.0, is_log=False)}).num_settings is None
