"""Write the generated pages of docs/reference: `python -m reference`."""

from reference.doc_links import DOCS
from reference.pages import reference_pages


def main() -> None:
    for path, text in reference_pages().items():
        page = DOCS / path
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
