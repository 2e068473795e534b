"""A report as one HTML page: everything inside, nothing loaded, no script."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from sim import __version__
from sim.report.page_style import STYLE
from sim.scenario.yaml_writer import yaml_text

# What a reader's browser is told to refuse, should anything ever slip in.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
MAX_ROWS = 200


@dataclass(frozen=True, slots=True)
class PageFigure:
    """A figure in its two forms, and its words.

    Attributes:
        name: of its files, without suffix.
        title: what is seen.
        caption: how to read it; empty: the title says all.
        size_px: width and height.
        svg: the picture.
        png: the picture.
    """

    name: str
    title: str
    caption: str
    size_px: tuple[int, int]
    svg: bytes
    png: bytes


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table.

    Attributes:
        title: above it.
        header: names of the columns.
        rows: cells as text.
        num_text_columns: how many columns, from the left, hold text rather than numbers.
        note: below it.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_text_columns: int = 1
    note: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says, from top to bottom.

    Attributes:
        title: of the page.
        facts: one line of what was run.
        warning: what the reader must not miss; empty: nothing.
        text: of the scenario's author; an empty line begins a paragraph.
        figures: numbered from 1.
        tables: below them.
        scenario: what was run, at the end.
    """

    title: str
    facts: str
    warning: str
    text: str
    figures: Sequence[PageFigure]
    tables: Sequence[PageTable]
    scenario: Mapping[str, Any]

    def html(self) -> str:
        """The whole document; the same page gives the same text."""
        paragraphs = [part.strip() for part in self.text.split("\n\n")]
        parts = [
            f"<h1>{escape(self.title)}</h1>",
            f'<p class="facts">{escape(self.facts)}</p>',
            *([f'<p class="bad">{escape(self.warning)}</p>'] if self.warning else []),
            *(f"<p>{escape(part)}</p>" for part in paragraphs if part),
            *(_figure(number, figure) for number, figure in enumerate(self.figures, start=1)),
            *map(_table, self.tables),
            f"<h2>Scenario</h2>\n<pre>{escape(yaml_text(self.scenario))}</pre>",
            f"<footer>Drawn by servetwin {escape(__version__)}.</footer>",
        ]
        return _document(self.title, "\n".join(parts))


def _document(title: str, body: str) -> str:
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _figure(number: int, figure: PageFigure) -> str:
    data = b64encode(figure.svg).decode("ascii")
    width, height = figure.size_px
    words = escape(figure.caption or figure.title)
    return (
        f'<figure id="figure-{number}">\n'
        f'<img src="data:image/svg+xml;base64,{data}" width="{width}" height="{height}"'
        f' alt="{escape(figure.title)}">\n'
        f"<figcaption><b>Figure {number}.</b> {words}</figcaption>\n"
        "</figure>"
    )


def _table(table: PageTable) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{_class(column, table, text)}>{escape(text)}</{tag}>"
            for column, text in enumerate(row)
        )

    rows = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in table.rows)
    note = f'\n<p class="facts">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<h2>{escape(table.title)}</h2>\n<div class="scroll"><table>\n'
        f"<thead><tr>{cells('th', table.header)}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n"
        f"</table></div>{note}"
    )


_LONG = 60


def _class(column: int, table: PageTable, text: str) -> str:
    if column >= table.num_text_columns:
        return ""
    return ' class="text wide"' if len(text) > _LONG else ' class="text"'
