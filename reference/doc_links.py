"""Turns the paths of documents in docstrings into links."""

import posixpath
import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"

_DOCUMENT = re.compile(r"\bdocs/([\w/-]+\.md)(?:#([\w-]+))?")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def with_links(text: str, page: str) -> str:
    """The text of a docstring, with paths such as `docs/explanation/latency.md#linear` as links.

    Args:
        text: the docstring.
        page: the page that will contain it, below `docs`: `reference/keys/latency.md`.
    """

    def link(found: re.Match[str]) -> str:
        document, anchor = found.groups()
        target = relative(document, page) + (f"#{anchor}" if anchor else "")
        return f"[{_heading(document, anchor)}]({target})"

    return _DOCUMENT.sub(link, text)


def _heading(document: str, anchor: str | None) -> str:
    """The heading of the linked page, or of the linked part of it."""
    headings = _HEADING.findall((DOCS / document).read_text(encoding="utf-8"))
    if anchor is None:
        return str(headings[0])
    return str(next((text for text in headings if _slug(text) == anchor), anchor))


def _slug(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def relative(document: str, page: str) -> str:
    """The path to a document relative to a page; both are given below `docs`."""
    return posixpath.relpath(document, posixpath.dirname(page))
