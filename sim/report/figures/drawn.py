"""A picture and the words around it: its panels, title and caption, and the name of its files."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sim.metrics.metric_name import MetricName
from sim.report.figures.axes import MetricAxis
from sim.report.figures.key_text import last_part, setting_text, value_text, where_text
from sim.report.figures.marks import Panel, Picture, Style
from sim.scenario.report_section import Plot
from sim.sweep.results import Design, Settings, SweepResults

_MAX_COLUMNS = 3
# Width and height of a panel, by the number of columns; and what titles and ticks take of it.
_PANEL_PX = {1: (980, 500), 2: (620, 420), 3: (480, 390)}
_AROUND_PX = (79, 60)
_HEADER_PX = 90


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A picture and the words around it.

    The slug is the name of its files, in lower case and without blanks; the caption says how to
    read it.
    """

    picture: Picture
    slug: str
    title: str
    caption: str


@dataclass(frozen=True, slots=True)
class PanelContent:
    """What one panel is about.

    `values` are those of the keys that divide the plot into panels; the metrics are on its vertical
    axis.
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
) -> list[PanelContent]:
    """A part for each metric and each combination of values of the keys that are not named."""
    divided = design.panels(named)
    return [PanelContent(values, part, group) for group in metrics for values, part in divided]


def draw_parts(
    parts: Sequence[PanelContent], draw: Callable[[PanelContent, Layout], Panel]
) -> Picture:
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


def seeds_caption(data: SweepResults, mark: str = "", axes: Iterable[MetricAxis] = ()) -> str:
    """Says that points are means of seeds, and what shows their intervals; empty for one seed.

    `mark` is what shows intervals on the figure, such as `bands`; empty: nothing does. `axes` are
    those along which they are shown.
    """
    if data.num_seeds < 2:
        return ""
    text = f"Means of {data.num_seeds} seeds"
    if not data.has_intervals or not mark:
        return f"{text}."
    shown = list(axes)
    cut = ", cut off at the frame" if any(axis.is_cut for axis in shown) else ""
    left = ". Those that reach below a log axis are not drawn"
    left = left if any(axis.leaves_out for axis in shown) else ""
    return f"{text}; {mark} are 95 % confidence intervals{cut}{left}."


def without_value_caption(key: str, values: Sequence[object]) -> str:
    """Names the values of a key that a figure leaves out, since no metric is defined there."""
    if not values:
        return ""
    texts = joined([value_text(key, value) for value in values])
    return f"Nothing can be shown for {last_part(key)} {texts}: no metric has a value there."


def in_title(text: str) -> str:
    """The text with a capital first letter, unless its first word is a name like p99."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


def titled(panels: Sequence[Sequence[MetricName]]) -> str:
    """What panels show, in words: `p99 TTFT and mean TTFT of hot and cold requests`."""
    words = []
    for metrics in panels:
        groups = [metric.group_label for metric in metrics]
        of = f" of {joined(groups)}" + ("" if "all requests" in groups else " requests")
        words.append(f"{metrics[0].label}{of}" if len(metrics) > 1 else metrics[0].long_label)
    return joined(words)


def finished(
    picture: Picture,
    plot: Plot,
    keys: Sequence[str],
    title: str,
    slug: Sequence[str],
    sentences: Sequence[str],
    legend: Sequence[Style] = (),
) -> Drawn:
    """Give a picture its title, its legend, and the words around it.

    A title or caption of the user's plot takes the place of `title` and `sentences`, of which empty
    ones are left out. `slug` has the parts of the name of the figure's files.
    """
    title = plot.title or in_title(title)
    caption = [plot.caption] if plot.caption else [text for text in sentences if text]
    if plot.where:
        caption.append(f"Only settings with {where_text(plot.where, keys)}.")
    picture = replace(picture, title=title, legend=legend)
    return Drawn(picture, slug_of(*slug), title, " ".join(caption))


def slug_of(*words: str) -> str:
    """A name for files, of letters, digits and dashes."""
    text = "-".join(words).lower()
    kept = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text)
    return "-".join(filter(None, kept.split("-")))[:60].rstrip("-")


def joined(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
