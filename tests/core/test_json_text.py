"""Lines of JSON are those of the library, whatever is in them."""

import json
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.files import json_text


class Pair(NamedTuple):
    first: object
    second: object


keys = st.text() | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys.filter(lambda key: key not in {float("inf"), -float("inf")}), inner,
                          max_size=4)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=20,
)  # fmt: skip


@given(value=values, indent=st.integers(0, 3), ascii_only=st.booleans())
def test_text_is_that_of_the_library(value, indent, ascii_only):
    """Also with keys that are no text, empty containers, and characters beyond ASCII."""
    expected = json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=ascii_only)
    assert json_text(value, indent, ascii_only=ascii_only) == f"{expected}\n"


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": [1, {"b": -float("inf")}]}])
def test_what_json_has_no_numbers_for_is_refused(value):
    """At every depth."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text(value)
