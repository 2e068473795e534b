"""Every page of the reference that is written from the code."""

from reference.commands import command_pages
from reference.keys import key_pages
from reference.metrics import PATH, metrics_page


def reference_pages() -> dict[str, str]:
    """Texts in Markdown by path below `docs`."""
    return {**key_pages(), **command_pages(), PATH: metrics_page()}
