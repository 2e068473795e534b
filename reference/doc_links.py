"""Paths of documents that a docstring names, as links of a page."""

import posixpath
import re
from pathlib import PurePosixPath

_DOCUMENT = re.compile(r"\bdocs/([\w/-]+\.md)(#[\w-]+)?")


def with_links(text: str, page: str) -> str:
    """The text with `docs/explanation/latency.md#linear` as a link from `page`.

    Args:
        text: of a docstring.
        page: where it goes, below `docs`: `reference/keys/latency.md`.
    """

    def link(found: re.Match[str]) -> str:
        document, anchor = found[1], found[2] or ""
        words = PurePosixPath(document).stem.replace("-", " ")
        words += anchor and f": {anchor[1:].replace('-', ' ')}"
        return f"[{words}]({relative(document, page)}{anchor})"

    return _DOCUMENT.sub(link, text)


def relative(document: str, page: str) -> str:
    """The way from a page to a document, both below `docs`."""
    return posixpath.relpath(document, posixpath.dirname(page))
