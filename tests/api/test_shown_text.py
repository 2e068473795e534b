"""Answers are shown up to the first stop text, however their tokens come."""

from hypothesis import given
from hypothesis import strategies as st

from sim.api.answer import ShownText


class Letters:
    """A token is a letter."""

    def add(self, token_ids):
        return "".join("ab"[token] for token in token_ids)

    def end(self):
        return "!"


@given(
    st.lists(st.lists(st.integers(0, 1), max_size=4), min_size=1, max_size=6),
    st.lists(st.text("ab!", min_size=1, max_size=3), max_size=3),
)
def test_text_is_shown_up_to_the_first_stop_text(parts, stops):
    shown = ShownText(Letters(), stops)
    pieces = [shown.add(part, ends=part is parts[-1]) for part in parts]
    whole = Letters().add([token for part in parts for token in part]) + "!"
    ends = [place for stop in stops if (place := whole.find(stop)) >= 0]
    expected = whole[: min(ends, default=len(whole))]
    assert "".join(pieces) == expected
    # At most as much is held back as may be the beginning of a stop text.
    most_held = max(map(len, stops), default=1) - 1
    so_far = fed = ""
    for part, piece in zip(parts[:-1], pieces, strict=False):
        so_far, fed = so_far + piece, fed + Letters().add(part)
        assert expected.startswith(so_far)
        assert len(so_far) >= min(len(expected), len(fed) - most_held)
