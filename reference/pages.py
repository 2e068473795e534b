"""All pages of the reference that are written from the code."""

from reference.commands import command_pages
from reference.keys import key_pages
from reference.metrics import PATH, metrics_page


def reference_pages() -> dict[str, str]:
    """The text of each page in Markdown, by its path below `docs`."""
    return {**key_pages(), **command_pages(), PATH: metrics_page()}
