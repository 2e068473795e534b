"""All pages of the reference that are written from the code."""

from reference.commands import command_pages
from reference.feature_page import PATH as FEATURES_PATH
from reference.feature_page import features_page
from reference.keys import key_pages
from reference.metrics import PATH, metrics_page


def reference_pages() -> dict[str, str]:
    """The text of each page in Markdown, by its path below `docs`."""
    return {**key_pages(), **command_pages(), FEATURES_PATH: features_page(), PATH: metrics_page()}
