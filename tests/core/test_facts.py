"""Requests and steps are copied whole. Units are converted on input and output only."""

from copy import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.batch import ForwardMode
from sim.core.errors import InputError
from sim.core.request import RequestSpec
from sim.core.tokens import SegmentPrompt
from sim.core.units import ms_to_ns, seconds_to_ns
from sim.latency.features import StepFeatures
from tests.support.facts import facts_of


def spec():
    prompt = SegmentPrompt(((1, 5),))
    return RequestSpec("a", 1, prompt, 10, 2, True, 3, "b", "c", True)


def step():
    return StepFeatures(ForwardMode.MIXED, 1, 2, 3, 4, 5, 6, 7, 8, 9, ((1, 2),), 10, 11, True)


@pytest.mark.parametrize(("fact", "field"), [(spec(), "priority"), (step(), "max_rank_tokens")])
def test_a_copy_has_every_field_and_is_changed_alone(fact, field):
    copied = fact.copy()
    assert facts_of(copied) == facts_of(fact)
    setattr(copied, field, 77)
    assert getattr(fact, field) != 77


def test_request_specs_are_compared_by_identity():
    """Two requests that ask the same are still two."""
    assert spec() != spec()


@given(st.integers(0, 10**6))
def test_units_whole_numbers_convert_exactly(amount):
    """No rounding where none is needed."""
    assert seconds_to_ns(amount) == amount * 10**9
    assert ms_to_ns(amount) == amount * 10**6


def test_units_fractions_round_to_the_nearest_ns():
    """An int comes out."""
    assert seconds_to_ns(0.1) == 100_000_000
    assert seconds_to_ns(1.4e-9) == 1
    assert ms_to_ns(0.0000016) == 2
    assert type(ms_to_ns(1.5)) is int


def test_an_error_about_a_key_says_so_in_its_text_and_keeps_it_apart():
    error = InputError("is unknown", key=("workload", "parts", 2, "tenant"))
    assert str(error) == "workload.parts.2.tenant: is unknown"
    for same in (error, copy(error)):
        assert (same.reason, same.key) == ("is unknown", ("workload", "parts", 2, "tenant"))
    assert (str(InputError("a: b")), InputError("a: b").key) == ("a: b", ())
