"""Draws a picture's marks with matplotlib, in one style, and saves figures."""

import io
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

# While it loads, matplotlib says where it keeps its list of fonts if there is no home folder, and
# that it makes the list. It is no concern of who wants a picture.
_logger = logging.getLogger("matplotlib")
_level = _logger.level
_logger.setLevel(logging.ERROR)

import matplotlib.style
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from sim.core.errors import InputError
from sim.core.files import atomic_path
from sim.report.figures.key_text import latency_text, number_text
from sim.report.figures.marks import (
    GREY,
    Axis,
    Band,
    Bars,
    Cells,
    Dash,
    Guide,
    Line,
    Mark,
    Note,
    Panel,
    Picture,
    Style,
)

_logger.setLevel(_level)
_DPI = 120
# Metadata by kind of file. None omits versions and dates: the same figure gives the same bytes.
_METADATA: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None}}
_STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.labelcolor": "#333333",
    "axes.labelsize": 9.5,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlepad": 8,
    "font.size": 9.5,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "butt",
    # Fixed, so that the same log gives the same SVG.
    "svg.hashsalt": "servetwin",
    "xtick.color": GREY,
    "xtick.labelcolor": "#333333",
    "ytick.color": GREY,
    "ytick.labelcolor": "#333333",
}

_P = ParamSpec("_P")
_R = TypeVar("_R")


def styled(draw: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a function draw in this module's style, whatever the user's matplotlib settings are."""

    @wraps(draw)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with matplotlib.style.context(["default", _STYLE]):
            return draw(*args, **kwargs)

    return wrapper


class _Shown(Figure):
    """A figure that notebooks show as it is saved, without a magic command."""

    def _repr_png_(self) -> bytes:
        return figure_bytes(self, "png")


def new_figure(width_px: int = 1_200, height_px: int = 800) -> Figure:
    """An empty figure. It is made without pyplot, whose global list would keep it in memory."""
    figure = _Shown(
        figsize=(width_px / _DPI, height_px / _DPI),
        dpi=_DPI,
        layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08),
    )
    FigureCanvasAgg(figure)
    return figure


# Characters of names that no XML document may have.
_NOT_IN_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


@styled
def save_figure(figure: Figure, path: Path) -> None:
    """Save as .png or .svg, by suffix; the same figure gives the same bytes."""
    if path.suffix[1:] not in _METADATA:
        known = " or ".join(f".{kind}" for kind in _METADATA)
        raise InputError(f"{path}: unknown suffix '{path.suffix}', expected {known}")
    with atomic_path(path) as beside:
        beside.write_bytes(figure_bytes(figure, path.suffix[1:]))


@styled
def figure_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as `png` or `svg`; the same figure gives the same bytes."""
    file = io.BytesIO()
    figure.savefig(file, format=kind, metadata=_METADATA[kind])
    content = file.getvalue()
    return _NOT_IN_XML.sub(b"?", content) if kind == "svg" else content


def plain_text(name: str) -> str:
    """A name, escaped: matplotlib takes `$` for a formula, and hides labels that begin with `_`."""
    escaped = name.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


_TITLE_FONT = FontProperties(size=13, weight="bold")
_CHARACTER_PX, _HANDLE_PX = 8.0, 60
_FONT_POINTS, _CELL_POINTS = 8.5, 9
_SLANTED: Mapping[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
# Smaller dots crowd, so that white edges would hide them.
_LEAST_EDGED = 5.0


@styled
def matplotlib_figure(picture: Picture) -> Figure:
    """The picture as a figure of matplotlib, for PNG, SVG and notebooks."""
    figure = new_figure(*picture.size_px)
    rows = -(-len(picture.panels) // picture.columns)
    grid = figure.subplots(rows, picture.columns, squeeze=False,
                           sharex=picture.shares == "x", sharey=picture.shares == "y")  # fmt: skip
    places = list(grid.flat)
    for unused in places[len(picture.panels) :]:
        unused.remove()
    for axes, panel in zip(places, picture.panels, strict=False):
        _draw_panel(axes, panel)
        if picture.shares:
            axes.label_outer()
    if picture.shares == "x":
        figure.align_ylabels()
    _draw_colour_bar(figure, picture)
    _put_header(figure, picture.title, picture.legend)
    return figure


def save_picture(picture: Picture, path: Path) -> None:
    """Save as .png or .svg, see `save_figure`."""
    save_figure(matplotlib_figure(picture), path)


def _draw_panel(axes: Axes, panel: Panel) -> None:
    for which, axis in (("x", panel.x), ("y", panel.y)):
        _show_axis(axes, which, axis)
    if panel.is_square:
        axes.set_aspect("equal")
    for mark in panel.marks:
        _draw(mark, axes)
    axes.set_title(plain_text(panel.title))
    if panel.legend:
        # To the right of the title, where it never covers data.
        axes.legend(*_entries(panel.legend), loc="lower right", bbox_to_anchor=(1.0, 0.99), ncols=3,
                    borderaxespad=0.0, handlelength=1.2)  # fmt: skip


def _show_axis(axes: Axes, which: str, shown: Axis) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    if shown.is_log:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    (axes.set_xlim if which == "x" else axes.set_ylim)(*shown.limits)
    axis.set_label_text(plain_text(shown.label))
    if shown.ticks:
        places, texts = zip(*shown.ticks, strict=True)
        axis.set_ticks(places, [plain_text(text) for text in texts],
                       **(_SLANTED if shown.is_slanted else {}))  # fmt: skip
        axis.set_ticks([], minor=True)
        return
    if shown.is_log and shown.limits[1] < 50 * shown.limits[0]:
        # Several ticks for each power of ten, as there are few.
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    elif shown.is_latency and not shown.is_log:
        # Texts with units are long.
        axis.set_major_locator(MaxNLocator(5))
    write = latency_text if shown.is_latency else number_text
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    axis.set_minor_formatter(NullFormatter())


@singledispatch
def _draw(mark: Mark, axes: Axes) -> None:
    raise NotImplementedError(f"no way to draw a {type(mark).__name__}")


@_draw.register
def _(mark: Line, axes: Axes) -> None:
    is_open = mark.fill in {"none", "hollow"}
    has_edge = mark.fill == "full" and mark.size >= _LEAST_EDGED and mark.marker != "_"
    edge: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.5} if has_edge else {}
    if mark.size < _LEAST_EDGED:
        edge = {"markeredgewidth": 0}
    face = {"hollow": "white", "none": "none"}[mark.fill] if is_open else mark.colour
    axes.plot(
        mark.x, mark.y, color=mark.colour, linewidth=mark.width, marker=mark.marker or None,
        linestyle=_dashes(mark.dash) if mark.width else "none", markersize=mark.size,
        fillstyle="full" if is_open else mark.fill, markerfacecolor=face, alpha=mark.opacity,
        drawstyle="steps-post" if mark.steps else "default", zorder=3 if mark.on_top else 2,
        label=plain_text(mark.line), **edge,
    )  # fmt: skip


@_draw.register
def _(mark: Band, axes: Axes) -> None:
    axes.fill_between(mark.x, mark.low, mark.high, color=mark.colour, alpha=mark.opacity,
                      linewidth=0, step="post" if mark.steps else None)  # fmt: skip


@_draw.register
def _(mark: Bars, axes: Axes) -> None:
    for bar in axes.bar(mark.x, mark.y, mark.width, color=mark.colour):
        if mark.hatch:
            bar.set_hatch(mark.hatch)
            bar.set_edgecolor("white")
    axes.grid(visible=False, axis="x")


@_draw.register
def _(mark: Guide, axes: Axes) -> None:
    draw = axes.axvline if mark.axis == "x" else axes.axhline
    draw(mark.at, color=mark.colour, linewidth=mark.width,
         linestyle=_dashes(mark.dash, mark.shift), zorder=1)  # fmt: skip


@_draw.register
def _(mark: Note, axes: Axes) -> None:
    coordinates = ("axes fraction" if mark.x_is_share else "data",
                   "axes fraction" if mark.y_is_share else "data")  # fmt: skip
    arrow = {"arrowstyle": "-", "color": mark.colour, "linewidth": 0.5, "shrinkB": 3}
    axes.annotate(
        plain_text(mark.text), (mark.x, mark.y), xycoords=coordinates, xytext=(mark.dx, mark.dy),
        textcoords="offset points", ha=_align(mark.dx, "right", "left"),
        va=_align(mark.dy, "top", "bottom"), rotation=90 if mark.is_upright else 0,
        color=mark.colour, fontsize=_FONT_POINTS, fontweight="bold" if mark.is_bold else "normal",
        # Legible over lines.
        path_effects=[withStroke(linewidth=2.5, foreground="white")], zorder=5,
        arrowprops=arrow if mark.is_far else None,
    )  # fmt: skip


@_draw.register
def _(mark: Cells, axes: Axes) -> None:
    colours = _colours(mark)
    axes.imshow(mark.values, aspect="auto", origin="lower").set(
        norm=colours.norm, cmap=colours.cmap
    )
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for row, texts in enumerate(mark.texts):
        for column, text in enumerate(texts):
            if text:
                red, green, blue, _ = np.asarray(colours.to_rgba(mark.values[row, column])).tolist()
                is_dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
                axes.text(column, row, text, ha="center", va="center", fontsize=_CELL_POINTS,
                          color="white" if is_dark else "black")  # fmt: skip


def _colours(cells: Cells) -> ScalarMappable:
    """Values to colours that the colour-blind can read, too: dark to light, or blue to red."""
    make = LogNorm if cells.colours.is_log else Normalize
    name = "RdBu_r" if cells.is_diverging else "cividis"
    return ScalarMappable(make(*cells.colours.limits, clip=True), colormaps[name])


def _draw_colour_bar(figure: Figure, picture: Picture) -> None:
    """One for all panels, whose cells have the same colours."""
    cells = [mark for panel in picture.panels for mark in panel.marks if isinstance(mark, Cells)]
    if not cells:
        return
    shown = cells[0].colours
    bar = figure.colorbar(_colours(cells[0]), ax=figure.axes, pad=0.02, aspect=30)
    bar.set_ticks([at for at, _ in shown.ticks], labels=[text for _, text in shown.ticks])
    bar.minorticks_off()
    bar.set_label(plain_text(shown.label))
    bar.outline.set_visible(False)


def _put_header(figure: Figure, title: str, styles: Sequence[Style]) -> None:
    """The title, and a legend below it if there are two styles or more."""
    if len(styles) < 2:
        if title:
            figure.suptitle(plain_text(title), x=0.012, ha="left", fontproperties=_TITLE_FONT)
        return
    widest_px = max(len(style.label) for style in styles) * _CHARACTER_PX + _HANDLE_PX
    most = max(1, int(figure.get_figwidth() * figure.dpi / widest_px))
    columns = -(-len(styles) // -(-len(styles) // most))
    # A legend is filled by columns; so ordered, it reads row by row.
    rows = range(0, len(styles), columns)
    ordered = [styles[row + column] for column in range(columns) for row in rows
               if row + column < len(styles)]  # fmt: skip
    legend = figure.legend(
        *_entries(ordered), loc="outside upper left", ncols=columns, handlelength=2.8,
        title=plain_text(title) or None, title_fontproperties=_TITLE_FONT,
    )  # fmt: skip
    legend.set_alignment("left")


def _entries(styles: Sequence[Style]) -> tuple[list[Line2D | Patch], list[str]]:
    return [_handle(style) for style in styles], [plain_text(style.label) for style in styles]


def _handle(style: Style) -> Line2D | Patch:
    if style.is_area:
        return Patch(facecolor=style.colour, hatch=style.hatch or None, edgecolor="white",
                     linewidth=0)  # fmt: skip
    return Line2D([], [], color=style.colour, marker=style.marker or None, markersize=5,
                  linestyle=_dashes(style.dash) if style.is_joined else "none",
                  fillstyle="full" if style.fill == "hollow" else style.fill)  # fmt: skip


def _dashes(dash: Dash, shift: float = 0.0) -> Any:
    return (shift, dash) if dash else "-"


def _align(offset: float, below: str, above: str) -> str:
    return "center" if offset == 0 else (below if offset < 0 else above)
