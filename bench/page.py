"""Puts the last tables into docs/explanation/performance.md: `python -m bench.page`."""

import sys
from pathlib import Path

from bench.places import OUT, REPOSITORY
from bench.results import PARTS, sections
from sim.core.errors import InputError
from sim.core.files import atomic_path


def main() -> None:
    page = REPOSITORY / "docs" / "explanation" / "performance.md"
    try:
        text = page.read_text(encoding="utf-8")
        for part in PARTS:
            if (OUT / f"{part}.json").exists():
                text = replaced(text, part, "\n\n".join(sections([part], OUT)), page)
        with atomic_path(page) as beside:
            beside.write_text(text, encoding="utf-8")
    except InputError as error:
        sys.stderr.write(f"bench: {error}\n")
        sys.exit(2)


def replaced(text: str, part: str, content: str, page: Path) -> str:
    """The text with new content between the two marks of a part.

    Raises:
        InputError: a mark is missing.
    """
    begin, end = f"<!-- {part} -->", f"<!-- end of {part} -->"
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise InputError(f"{page}: needs both {begin} and {end}")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


if __name__ == "__main__":
    main()
