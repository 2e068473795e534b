"""Reads the axes, texts and heat maps of a panel off matplotlib."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex
from matplotlib.image import AxesImage
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator

from sim.report.interactive.marks import Cells, Note, PanelAxis

_POINT_PX = 4 / 3


def read_axis(axes: Axes, which: str) -> PanelAxis:
    """The `x` or the `y` axis; one that shares another's title gets it."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    is_log = axis.get_scale() == "log"
    label = axis.get_label_text()
    if not label and which == "x":
        siblings = axes.get_shared_x_axes().get_siblings(axes)
        label = next(filter(None, (other.get_xlabel() for other in siblings)), "")
    is_named = isinstance(axis.get_major_locator(), FixedLocator)
    texts = axis.get_major_formatter().format_ticks([10.0])
    return PanelAxis(
        label=as_written(label),
        is_log=is_log,
        limits=(float(low), float(high)),
        ticks=list(_ticks(axis)) if is_named else (),
        is_latency=is_log and texts == ["10 ms"],
    )


def _ticks(axis: Axis) -> Iterator[tuple[float, str]]:
    places = axis.get_majorticklocs().tolist()
    texts = axis.get_major_formatter().format_ticks(places)
    for place, text in zip(places, texts, strict=True):
        yield float(place), as_written(text)


def as_written(text: str) -> str:
    """The text before `plain_text` escaped it for matplotlib."""
    return text.replace(r"\$", "$").removeprefix(" ")


def read_notes(axes: Axes) -> Iterator[Note]:
    """Texts that belong to a point, and those at an end of the panel."""
    for text in axes.texts:
        if not isinstance(text, Annotation):
            continue
        is_share = text.xycoords == ("axes fraction", "data")
        if text.xycoords != "data" and not is_share:
            continue
        dx, dy = text.xyann
        yield Note(
            text=as_written(text.get_text()),
            x=float(text.xy[0]),
            y=float(text.xy[1]),
            dx=float(dx) * _POINT_PX,
            dy=float(dy) * _POINT_PX,
            colour=to_hex(text.get_color()),
            x_is_share=is_share,
            has_arrow=text.arrow_patch is not None,
            is_bold=text.get_fontweight() == "bold",
        )


def read_cells(axes: Axes, colour_bar: Axes | None) -> Cells | None:
    """The heat map of a panel; None if it has none."""
    image = next((child for child in axes.images if isinstance(child, AxesImage)), None)
    if image is None:
        return None
    values = np.ma.filled(np.ma.asarray(image.get_array(), dtype=np.float64), np.nan)
    shares = np.ma.filled(np.ma.asarray(image.norm(values), dtype=np.float64), np.nan)
    texts = [["" for _ in row] for row in values]
    for text in axes.texts:
        column, row = (round(float(place)) for place in text.get_position())
        texts[row][column] = text.get_text()
    return Cells(
        x=[text for _, text in _ticks(axes.xaxis)],
        y=[text for _, text in _ticks(axes.yaxis)],
        values=[_defined(row) for row in values],
        shares=[_defined(row) for row in shares],
        texts=texts,
        colours=image.get_cmap().name.capitalize(),
        ticks=[] if colour_bar is None else list(_bar_ticks(colour_bar, image)),
        label="" if colour_bar is None else as_written(colour_bar.get_ylabel()),
    )


def _bar_ticks(bar: Axes, image: AxesImage) -> Iterator[tuple[float, str]]:
    low, high = sorted(bar.get_ylim())
    for place, text in _ticks(bar.yaxis):
        if low <= place <= high and text:
            yield float(np.asarray(image.norm(np.array([place])), dtype=np.float64)[0]), text


def _defined(row: np.ndarray) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in row]
