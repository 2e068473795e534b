"""What SGLang's text log shows of objects, read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.server_log.python_text import (
    CutValue,
    LogFormatError,
    LoggedDataclass,
    SkippedText,
    read_value,
)

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(0, 1e9, allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN)
def test_whatever_python_writes_of_plain_data_is_read_back(value):
    text = repr(value)
    assert read_value(text, 0) == (value, len(text))


@given(st.text(), st.lists(st.integers()), PLAIN)
def test_dataclass_is_read_field_by_field(text, ids, params):
    """Texts with brackets and quotes end where they end."""
    shown = f"GenerateReqInput(rid='a', text={text!r}, input_ids={ids!r}, params={params!r})"
    value, end = read_value(f"obj={shown}, out=", 4)
    fields = {"rid": "a", "text": text, "input_ids": ids, "params": params}
    assert value == LoggedDataclass("GenerateReqInput", fields)
    assert end == 4 + len(shown)


def test_what_was_cut_keeps_its_beginning():
    shown = "R(text='ab' ... 'yz', ids=[1, 2] ... [8, 9], n=3)"
    value, _ = read_value(shown, 0)
    assert value == LoggedDataclass("R", {"text": CutValue("ab"), "ids": CutValue([1, 2]), "n": 3})


def test_what_objects_print_of_themselves_is_passed_over():
    shown = "R(a=<Thing (1, 2) at 0x7f>, b=Kind.ONE, c=<x: ','>, d=Odd(1, 'x)'), e=2)"
    value, end = read_value(shown, 0)
    assert end == len(shown)
    assert isinstance(value, LoggedDataclass)
    assert {name for name, part in value.fields.items() if isinstance(part, SkippedText)} == set(
        "abcd"
    )
    assert value.fields["e"] == 2


@pytest.mark.parametrize(
    "text", ["", "'open", "[1, 2", "{'a': 1", "R(a=1", "R(a=1]", "{'a' 1}", ")"]
)
def test_text_that_is_cut_off_is_refused(text):
    with pytest.raises(LogFormatError):
        read_value(text, 0)


def test_nesting_without_end_is_refused():
    with pytest.raises(LogFormatError):
        read_value("[" * 1000 + "]" * 1000, 0)
