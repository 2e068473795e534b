"""How pictures look: colours, fonts, axes, and how they are saved."""

import io
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sim.core.atomic import atomic_path
from sim.core.errors import InputError
from sim.core.units import NS_PER_S

# Okabe and Ito's palette, which the colour-blind can tell apart; strongest contrasts first.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#6b6b6b"

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
    """Save as .png or .svg, by suffix; the same figure gives the same bytes.

    Raises:
        InputError: another suffix, or the file cannot be written.
    """
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


def time_unit(duration_ns: int) -> tuple[int, str]:
    """The unit for a time axis of this length: its ns, and its name."""
    if duration_ns < 600 * NS_PER_S:
        return NS_PER_S, "s"
    if duration_ns < 3 * 3_600 * NS_PER_S:
        return 60 * NS_PER_S, "min"
    return 3_600 * NS_PER_S, "h"


def latency_text(milliseconds: float) -> str:
    """A latency with its unit, to three digits."""
    if milliseconds < 1_000:
        return f"{milliseconds:.3g} ms"
    if milliseconds < 999_500:
        return f"{milliseconds / 1_000:.3g} s"
    return f"{milliseconds / 1_000:,.0f} s"


def plain_text(name: str) -> str:
    """A name, escaped: matplotlib takes `$` for a formula, and hides labels that begin with `_`."""
    escaped = name.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def put_log_latency_axis(axes: Axes, label: str) -> None:
    """Make the x axis logarithmic in ms: 10 ms, 100 ms, 1 s. Its limits must be set before."""
    axes.set_xscale("log")
    put_log_ticks(axes.xaxis, *axes.get_xlim())
    put_tick_text(axes.xaxis, latency_text)
    axes.set_xlabel(label)


def put_log_ticks(axis: Axis, low: float, high: float) -> None:
    """Set the ticks of a logarithmic axis: several for each power of ten if it spans little."""
    if high < 50 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_formatter(NullFormatter())


def put_tick_text(axis: Axis, text: Callable[[float], str]) -> None:
    """Set the function that writes the text of an axis' ticks."""
    axis.set_major_formatter(FuncFormatter(lambda value, _position: text(value)))
