"""How pictures look: colours, fonts, axes, and how they are saved."""

import io
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from sim.core.errors import InputError
from sim.core.files import atomic_path
from sim.report.figures.marks import GREY

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
