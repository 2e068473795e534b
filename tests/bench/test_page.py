"""Tables are written into a page of the documentation."""

from pathlib import Path

import pytest

from bench.page import replaced
from bench.places import REPOSITORY
from bench.results import PARTS
from sim.core.errors import InputError


def test_replaced_only_what_is_between_the_marks():
    """Twice is the same as once."""
    text = "a\n<!-- peers -->\nold\n<!-- end of peers -->\nb\n"
    once = replaced(text, "peers", "new", Path("page.md"))
    assert once == "a\n<!-- peers -->\n\nnew\n\n<!-- end of peers -->\nb\n"
    assert replaced(once, "peers", "new", Path("page.md")) == once


def test_replaced_page_without_a_mark_is_refused():
    """With its name."""
    with pytest.raises(InputError, match=r"page\.md: needs both <!-- peers -->"):
        replaced("<!-- peers -->", "peers", "new", Path("page.md"))


def test_performance_page_has_a_place_for_every_part():
    """Each tool's tables go somewhere."""
    page = REPOSITORY / "docs" / "explanation" / "performance.md"
    for part in PARTS:
        assert replaced(page.read_text(encoding="utf-8"), part, "tables", page)
