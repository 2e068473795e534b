"""Objects that modules exchange are frozen. Units are converted on input and output only."""

from copy import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.batch import Batch, ForwardMode, PrefillRow, StepOutput
from sim.core.errors import InputError
from sim.core.request import RequestSpec
from sim.core.tokens import SegmentPrompt
from sim.core.units import ms_to_ns, seconds_to_ns


def spec():
    return RequestSpec("a", 0, SegmentPrompt(((1, 5),)), 10)


@pytest.mark.parametrize(
    ("fact", "name"),
    [
        (spec(), "priority"),
        (Batch(ForwardMode.DECODE, (), ("a",), 5, 5), "mode"),
        (StepOutput(("a",)), "finished_rids"),
        (SegmentPrompt(((1, 5),)), "segments"),
    ],
)
def test_fact_cannot_be_changed(fact, name):
    """Whoever holds one may rely on it."""
    with pytest.raises(AttributeError):
        setattr(fact, name, None)


def test_prefill_row_cannot_be_changed():
    """Rows are tuples."""
    with pytest.raises(AttributeError):
        PrefillRow("a", 0, 5, 0, samples=True).extend_len = 6


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
