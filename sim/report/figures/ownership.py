"""Which line of a figure a mark belongs to. The page needs it: a legend entry hides all its marks.

matplotlib's label of a mark carries it. `lpm` is a mark that shows values of the line `lpm`: the
reader can point at it, and the figure's data have it. `_with lpm` goes along with the line `lpm`
but shows nothing of its own: a segment between points, a ring, an interval.
"""

import re
from typing import NamedTuple

_BESIDE = "_with "
# The label of the only line of a figure, which has no name.
_ONLY = "_line"
# Labels that matplotlib gives to what has none.
_UNNAMED = re.compile(r"_child\d+|_nolegend_")


class Owner(NamedTuple):
    """The line that a mark belongs to, and whether the mark shows its values."""

    line: str
    has_values: bool


def own(line: str) -> str:
    """The label of a mark that shows a line's values."""
    return line or _ONLY


def beside(line: str) -> str:
    """The label of a mark that goes along with a line."""
    return f"{_BESIDE}{line}"


def owner_of(label: object) -> Owner:
    """Reads a mark's label."""
    text = str(label)
    if text == _ONLY or _UNNAMED.fullmatch(text):
        return Owner("", text == _ONLY)
    return Owner(text.removeprefix(_BESIDE), not text.startswith(_BESIDE))
