"""Write the generated pages of docs/reference: `python -m reference`."""

from pathlib import Path

from reference.pages import reference_pages

_DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    for path, text in reference_pages().items():
        page = _DOCS / path
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
