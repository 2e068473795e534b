"""The page of a finished run, sweep or search: one HTML document, figures as .svg and .png."""

import gzip
import math
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sim import __version__
from sim.core.errors import InputError
from sim.core.files import atomic_path, make_folder, remove_file, write_text
from sim.metrics.latencies import slo_limits
from sim.report.capacity_tables import front_lines, loads_table
from sim.report.confidence_text import confidence_lines
from sim.report.document import data_script, document, page_file, plotly_bytes
from sim.report.figures.marks import Picture
from sim.report.figures.memory import draw_memory
from sim.report.figures.plot_parts import Drawn
from sim.report.figures.render import figure_bytes, matplotlib_figure
from sim.report.figures.run import draw_run
from sim.report.figures.searches import draw_plan, draw_tune
from sim.report.plots import draw_report, report_section
from sim.report.run_folder import SUMMARY, read_run
from sim.report.search_tables import (
    best_table,
    confidence_of_best,
    front_table,
    method_in_words,
    verdicts,
)
from sim.report.summary_text import (
    MAX_ROWS,
    group_table,
    latency_table,
    pool_tables,
    slo_table,
    totals_table,
)
from sim.report.sweep_tables import (
    failures_table,
    settings_table,
    sweep_basis,
    sweep_intervals,
    value_json,
)
from sim.scenario.strict_yaml import yaml_text
from sim.sweep.capacity.read import is_plan_folder, read_plan
from sim.sweep.result_files import RESULTS, REWRITE_HINT, read_results
from sim.sweep.tune.files import is_tune_folder, read_tune_results
from sim.sweep.tune.results import TuneResults
from sim.tables.table import Table, columns_of, counted, number

_SCRIPT = "report.js"


class PageFigure(NamedTuple):
    """A figure in all its forms.

    The name of its files has no suffix; `data` is what the page's script draws.
    """

    name: str
    drawn: Drawn
    svg: bytes
    png: bytes
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page, from top to bottom.

    `facts` is one line that says what was run, `trust` says how far to believe it, `warning` is a
    line in red or empty, `text` what the scenario's author wrote; an empty line begins a paragraph.
    """

    title: str
    facts: str
    trust: Sequence[str]
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
            *(f'<p class="facts">{escape(line.strip())}</p>' for line in self.trust),
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
    data, drawn = b64encode(figure.svg).decode("ascii"), figure.drawn
    title, caption, (width, height) = drawn.title, drawn.caption, drawn.picture.size_px
    return (
        f'<figure id="figure-{number}">\n'
        f'<img src="data:image/svg+xml;base64,{data}" width="{width}" height="{height}"'
        f' alt="{escape(title)}">\n'
        f"<figcaption><b>Figure {number}.</b> {escape(caption or title)}</figcaption>\n"
        "</figure>"
    )


PAGE = "index.html"
_FIGURE_NAME = re.compile(r"\d\d+-[a-z0-9-]+\.(svg|png)")


def page_figures(drawn: Iterable[Drawn]) -> list[PageFigure]:
    """Figures in all their forms; their names begin with their numbers, from 1."""
    figures = []
    for place, each in enumerate(drawn, start=1):
        figure = matplotlib_figure(each.picture)
        svg, png = (figure_bytes(figure, kind) for kind in ("svg", "png"))
        name = f"{place:02}-{each.slug}"
        figures.append(PageFigure(name, each, svg, png, picture_data(each.picture)))
    return figures


def picture_data(picture: Picture) -> dict[str, Any]:
    """The picture as the page's script draws it: its panels, and all entries of its legends."""
    legends = (picture.legend, *(panel.legend for panel in picture.panels))
    shown = {getattr(mark, "line", "") for panel in picture.panels for mark in panel.marks}
    entries = dict.fromkeys(style for styles in legends for style in styles
                            if style.label and style.label in shown)  # fmt: skip
    marks = [[{"kind": type(mark).__name__.lower(), **_plain(mark)} for mark in panel.marks]
             for panel in picture.panels]  # fmt: skip
    panels = [{**_plain(panel), "marks": found}
              for panel, found in zip(picture.panels, marks, strict=True)]  # fmt: skip
    return {"legend": _plain(list(entries)), "panels": panels}


def _plain(value: Any) -> Any:
    """Any part of a picture as JSON has it: numbers to six digits, None for what is not finite."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray | np.floating):
        return _plain(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def write_report(page: Page, folder: Path) -> list[Path]:
    """Write all files and return their paths, the page first.

    Figures of an earlier report are removed; other files are left alone. The page is removed first
    and written last, so if it exists, all its figures are complete.
    """
    make_folder(folder)
    contents = {f"{figure.name}.{kind}": content for figure in page.figures
                for kind, content in (("svg", figure.svg), ("png", figure.png))}  # fmt: skip
    remove_file(folder / PAGE)
    for path in sorted(folder.iterdir()):
        if _FIGURE_NAME.fullmatch(path.name) and path.name not in contents:
            remove_file(path)
    for name, content in contents.items():
        with atomic_path(folder / name) as beside:
            beside.write_bytes(content)
    write_text(folder / PAGE, page.html())
    return [folder / PAGE, *(folder / name for name in contents)]


def folder_page(folder: Path) -> Page:
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder of a run, a sweep or a search")
    if (folder / RESULTS).exists():
        if is_plan_folder(folder):
            return _plan_page(folder)
        return _tune_page(folder) if is_tune_folder(folder) else _sweep_page(folder)
    if (folder / SUMMARY).exists():
        return _run_page(folder)
    raise InputError(
        f"{folder}: has neither {RESULTS} of a finished sweep nor {SUMMARY} of a finished run"
    )


def _run_page(folder: Path) -> Page:
    """The page of a run, without `wall_seconds`: the same run always gives the same page."""
    data = read_run(folder)
    section = data.scenario.get("report") or {}
    name = str(data.scenario.get("name", "run"))
    facts = f"{name}: a run of {data.summary.get('submitted', 0):,} requests."
    if window := data.summary.get("window"):
        begin_s, end_s = number(window["begin_s"]), number(window["end_s"])
        facts += f" Figures are about {begin_s} s to {end_s} s of it; the timeline has all of it."
    saturated = (
        "The server cannot keep up with the load: its queue grew for as long as requests arrived."
    )
    tables = [
        latency_table(data.summary),
        *([slo_table(data.summary)] if slo_limits(data.summary) else []),
        *pool_tables(data.summary),
        group_table(data.summary),
        totals_table(data.summary),
    ]
    return Page(
        section.get("title") or name,
        facts,
        confidence_lines(data.summary.get("confidence", {})),
        saturated if data.summary.get("saturated") else "",
        section.get("text") or "",
        page_figures(draw_run(data)),
        tables,
        data.scenario,
    )


def _sweep_page(folder: Path) -> Page:
    data = read_results(folder)
    try:
        # Check it again: the file may have been edited since the sweep.
        section = report_section(data.scenario.get("report") or {}, data)
    except InputError as error:
        raise InputError(f"{folder / RESULTS}: {error} ({REWRITE_HINT})") from None
    facts = (
        f"{data.name}: a sweep of {counted(len(data.points), 'point')},"
        f" {counted(len(data.design.settings), 'setting')}"
    )
    if data.num_seeds > 1:
        facts += f" with {data.num_seeds} seeds each"
    failed, intervals = data.num_failed, sweep_intervals(data, max_rows=MAX_ROWS)
    return Page(
        section.title or data.name,
        f"{facts}.",
        sweep_basis(data),
        f"{failed:,} points failed and are not in the figures." if failed else "",
        section.text or "",
        page_figures(draw_report(data, section)),
        [
            settings_table(data),
            *([intervals] if intervals is not None else []),
            *([failures_table(data)] if failed else []),
        ],
        data.scenario,
    )


def _tune_page(folder: Path) -> Page:
    results, scenario = read_tune_results(folder)
    told = verdicts(results)
    tables = [
        replace(best_table(results), title="The best settings"),
        replace(front_table(results), title="Settings that no other beats in all respects"),
        *([_without_results(results)] if len(results.ranked()) < len(results.trials) else []),
    ]
    return Page(
        results.name,
        method_in_words(results),
        confidence_of_best(results),
        "" if results.winner is not None else told[0],
        "\n\n".join(told if results.winner is not None else ()),
        page_figures(draw_tune(results, scenario)),
        tables,
        scenario,
    )


def _plan_page(folder: Path) -> Page:
    found = read_plan(folder)
    shown = found.deployments[:MAX_ROWS]
    columns = columns_of(shown[0] if shown else [])
    cells = [[_cell(value) for value in row.values()] for row in shown]
    front = [
        replace(loads_table(found.loads), title="Deployments and loads that no other beats")
        for _ in front_lines(found.loads)
    ]
    return Page(
        found.name,
        found.sought,
        confidence_lines(found.confidence),
        "",
        "\n\n".join(front_lines(found.loads)),
        page_figures([*draw_memory(found.deployments, found.memory), *draw_plan(found.loads)]),
        [*front, Table(columns, cells, "All candidates")],
        found.scenario,
    )


def _cell(value: object) -> str:
    if value is None:
        return ""
    return number(value) if isinstance(value, float) else value_json(value)


def _without_results(results: TuneResults) -> Table:
    rows = [
        [str(trial.trial), *(value_json(trial.settings[key]) for key in results.keys), trial.status,
         trial.error or ""]
        for trial in results.trials
        if trial.sought is None
    ]  # fmt: skip
    columns = columns_of(["trial", *results.keys, "status", "reason"])
    return Table(columns, rows[:MAX_ROWS], "Trials without results")
