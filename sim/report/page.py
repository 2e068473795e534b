"""A report as one self-contained HTML page: it loads nothing, and runs its own scripts only."""

import gzip
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any, NamedTuple

from sim import __version__
from sim.report.document import data_script, document, page_file
from sim.report.figures.drawn import Drawn
from sim.report.plotly_script import plotly_bytes
from sim.scenario.strict_yaml import yaml_text
from sim.tables.table import Table

_SCRIPT = "report.js"


class PageFigure(NamedTuple):
    """A figure in all its forms.

    Attributes:
        name: of its files, without suffix.
        drawn: the figure and its words.
        svg, png: as files.
        data: as the page's script draws it.
    """

    name: str
    drawn: Drawn
    svg: bytes
    png: bytes
    data: Mapping[str, Any]


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
        figures = [{"name": figure.name, "data": figure.data} for figure in self.figures]
        parts.append(_scripts({"figures": figures}))
        return document(
            self.title,
            "\n".join(parts),
            style=page_file("report.css"),
            scripts=(page_file(_SCRIPT).encode(), plotly_bytes()),
        )


def _scripts(data: Mapping[str, Any]) -> str:
    """What the page's own script needs, and the script; browsers run only the last part."""
    plotly = _packed_plotly() if data["figures"] else ""
    return (
        f"{data_script(data)}\n"
        f'<script type="text/plain" id="plotly">{plotly}</script>\n'
        f"<script>{page_file(_SCRIPT)}</script>"
    )


@cache
def _packed_plotly() -> str:
    """Plotly's script as base64 of gzip: 2 MB where the script itself has 5."""
    return b64encode(gzip.compress(plotly_bytes(), mtime=0)).decode("ascii")


def _figure(number: int, figure: PageFigure) -> str:
    data = b64encode(figure.svg).decode("ascii")
    title, caption, (width, height) = (
        figure.drawn.title,
        figure.drawn.caption,
        figure.drawn.picture.size_px,
    )
    return (
        f'<figure id="figure-{number}">\n'
        f'<img src="data:image/svg+xml;base64,{data}" width="{width}" height="{height}"'
        f' alt="{escape(title)}">\n'
        f"<figcaption><b>Figure {number}.</b> {escape(caption or title)}</figcaption>\n"
        "</figure>"
    )
