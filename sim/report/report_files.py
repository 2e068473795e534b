"""A report on disk: the page, and each figure as .svg and .png."""

import re
from pathlib import Path

from sim.core.atomic import atomic_path
from sim.core.files import make_directory, remove_file, write_text
from sim.report.figures.canvas import Drawn
from sim.report.interactive.panels import figure_data
from sim.report.page import Page, PageFigure
from sim.report.plot_style import figure_bytes

PAGE = "index.html"
_FIGURE_NAME = re.compile(r"\d\d+-[a-z0-9-]+\.(svg|png)")


def page_figure(number: int, drawn: Drawn) -> PageFigure:
    """A figure in all its forms; its name begins with its number, from 1."""
    svg, png = (figure_bytes(drawn.figure, kind) for kind in ("svg", "png"))
    name = f"{number:02}-{drawn.slug}"
    return PageFigure(name, drawn, svg, png, figure_data(drawn.figure))


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
