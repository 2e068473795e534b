"""Every page of the reference that is written from the code."""

from reference.keys import key_pages


def reference_pages() -> dict[str, str]:
    """Texts in Markdown by path below `docs`."""
    return key_pages()
