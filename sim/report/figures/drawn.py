"""A picture with the words around it, and pictures of several panels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sim.metrics.metric_name import MetricName
from sim.report.figures.marks import Panel, Picture
from sim.report.key_text import setting_text
from sim.sweep.design import Design, Settings

_MAX_COLUMNS = 3
# Width and height of a panel, by the number of columns; and what titles and ticks take of it.
_PANEL_PX = {1: (980, 500), 2: (620, 420), 3: (480, 390)}
_AROUND_PX = (79, 60)
_HEADER_PX = 90


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A picture and the words around it.

    Attributes:
        picture: its panels.
        slug: the name of its files, in lower case and without blanks.
        title: what it shows.
        caption: how to read it.
    """

    picture: Picture
    slug: str
    title: str
    caption: str


@dataclass(frozen=True, slots=True)
class Part:
    """What one panel is about.

    Attributes:
        values: the values of the keys that divide the plot into panels.
        design: its settings.
        metrics: the metrics on its vertical axis.
    """

    values: Settings
    design: Design
    metrics: tuple[MetricName, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """How panels share a picture; `frame_px` is about the width and height of a panel's axes."""

    columns: int
    size_px: tuple[int, int]
    frame_px: tuple[int, int]

    @staticmethod
    def of(num_panels: int, preferred_columns: int | None = None) -> "Layout":
        columns = preferred_columns or (2 if num_panels == 4 else min(num_panels, _MAX_COLUMNS))
        width_px, height_px = _PANEL_PX[columns]
        size_px = width_px * columns, height_px * -(-num_panels // columns) + _HEADER_PX
        return Layout(columns, size_px, (width_px - _AROUND_PX[0], height_px - _AROUND_PX[1]))


def parts_of(
    design: Design, named: Sequence[str], metrics: Sequence[tuple[MetricName, ...]]
) -> list[Part]:
    """A part for each metric and each combination of values of the keys that are not named."""
    divided = design.panels(named)
    return [Part(values, part, group) for group in metrics for values, part in divided]


def draw_parts(parts: Sequence[Part], draw: Callable[[Part, Layout], Panel]) -> Picture:
    """A panel for each part, with the values that it is about as its title."""
    num_metrics = len({part.metrics for part in parts})
    per_metric = len(parts) // num_metrics
    is_row = 1 < per_metric <= _MAX_COLUMNS and num_metrics > 1
    layout = Layout.of(len(parts), per_metric if is_row else None)
    panels = [
        replace(draw(part, layout), title=setting_text(part.values, part.design.keys))
        for part in parts
    ]
    return Picture(panels=panels, columns=layout.columns, size_px=layout.size_px)
