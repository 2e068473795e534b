"""A report on disk: the page, and each figure as .svg and .png."""

import math
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim.core.files import atomic_path, make_directory, remove_file, write_text
from sim.report.figures.drawn import Drawn
from sim.report.figures.marks import Picture
from sim.report.figures.render import matplotlib_figure
from sim.report.page import Page, PageFigure
from sim.report.plot_style import figure_bytes

PAGE = "index.html"
_FIGURE_NAME = re.compile(r"\d\d+-[a-z0-9-]+\.(svg|png)")


def page_figure(number: int, drawn: Drawn) -> PageFigure:
    """A figure in all its forms; its name begins with its number, from 1."""
    figure = matplotlib_figure(drawn.picture)
    svg, png = (figure_bytes(figure, kind) for kind in ("svg", "png"))
    name = f"{number:02}-{drawn.slug}"
    return PageFigure(name, drawn, svg, png, picture_data(drawn.picture))


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

    Raises:
        InputError: the folder cannot be made, or writing failed.
    """
    make_directory(folder)
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
