"""A report as one self-contained HTML page: it loads nothing and has no script."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from sim import __version__
from sim.report.figures.canvas import Drawn
from sim.report.page_style import STYLE
from sim.scenario.yaml_writer import yaml_text
from sim.tables.table import Table

# Tells browsers to load nothing and run nothing, even if a scenario's text contains HTML for that.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class PageFigure(NamedTuple):
    """A figure, also as SVG and PNG; `name` is that of its files without suffix."""

    name: str
    drawn: Drawn
    svg: bytes
    png: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page, from top to bottom.

    Attributes:
        title: the heading.
        facts: one line that says what was run.
        warning: a line in red; empty: none.
        text: the text that the scenario's author wrote; an empty line begins a paragraph.
        figures: the page numbers them from 1.
        tables: below the figures.
        scenario: what was run, at the end.
    """

    title: str
    facts: str
    warning: str
    text: str
    figures: Sequence[PageFigure]
    tables: Sequence[Table]
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
            *(table.html() for table in self.tables),
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
    title, caption, (width, height) = figure.drawn.title, figure.drawn.caption, figure.drawn.size_px
    return (
        f'<figure id="figure-{number}">\n'
        f'<img src="data:image/svg+xml;base64,{data}" width="{width}" height="{height}"'
        f' alt="{escape(title)}">\n'
        f"<figcaption><b>Figure {number}.</b> {escape(caption or title)}</figcaption>\n"
        "</figure>"
    )
