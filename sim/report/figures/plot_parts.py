"""What plots share: panels, lines and their styles, limits of an SLO, titles and captions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from sim.metrics.points import MeanInterval
from sim.metrics.registry import MetricName
from sim.report.figures.axes import MetricAxis, Zero
from sim.report.figures.key_text import (
    key_label,
    key_name,
    last_part,
    latency_text,
    setting_text,
    value_text,
    where_text,
)
from sim.report.figures.marks import (
    Axis,
    Guide,
    Mark,
    Note,
    Panel,
    Picture,
    Style,
    numbered_style,
)
from sim.report.figures.plot_check import panel_metrics
from sim.scenario.report_section import BarsPlot, CurvePlot, LoadPlot, Plot, ScatterPlot
from sim.sweep.results import Design, Settings, SweepResults, same

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

    `values` are those of the keys that divide the plot into panels; `metrics` are on the vertical
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


SLO_COLOUR = "#b2182b"
# An axis is widened to a limit that is at most this many times its largest mean, or at least this
# part of its smallest one.
_REACH = 4.0
_OverKey: TypeAlias = BarsPlot | CurvePlot | LoadPlot | ScatterPlot
# A setting, and the interval of a metric there.
Point: TypeAlias = tuple[Settings, MeanInterval]


def limit_of(data: SweepResults, metrics: Sequence[MetricName]) -> float | None:
    """The SLO's limit of a panel's metric; None: it has none."""
    return data.slo_limits.get(metrics[0].base)


def widened(
    data: SweepResults, metrics: Sequence[MetricName], shown: Sequence[MeanInterval]
) -> list[MeanInterval]:
    """What an axis shows, with the SLO's limit if that is near."""
    limit = limit_of(data, metrics)
    means = [interval.mean for interval in shown if interval.mean is not None]
    if limit is None or not means or not min(means) / _REACH <= limit <= _REACH * max(means):
        return list(shown)
    return [*shown, MeanInterval(limit, None, 1)]


def limit_marks(limit_ms: float | None, axis: Axis, which: Literal["x", "y"] = "y") -> list[Mark]:
    """A dashed line at the limit, with `SLO 300 ms` where it begins; nothing off the axis."""
    if limit_ms is None or not axis.limits[0] <= limit_ms <= axis.limits[1]:
        return []
    text, is_x = f"SLO {latency_text(limit_ms)}", which == "x"
    return [
        Guide(axis=which, at=limit_ms, colour=SLO_COLOUR, width=1.1, dash=(5, 2)),
        Note(text=text, x=limit_ms if is_x else 0, y=0 if is_x else limit_ms, colour=SLO_COLOUR,
             dx=3, dy=4 if is_x else 2, x_is_share=not is_x, y_is_share=is_x, is_upright=is_x),
    ]  # fmt: skip


def slo_caption(data: SweepResults, axes: Mapping[tuple[MetricName, ...], MetricAxis]) -> str:
    """Says what the lines are, and which limits are off the axis; empty if there are none."""
    drawn, off = [], []
    for metrics, axis in axes.items():
        limit = limit_of(data, metrics)
        if limit is None:
            continue
        low, high = axis.axis.limits
        label = metrics[0].label
        if low <= limit <= high:
            drawn.append(f"{label} of {latency_text(limit)} at most")
        else:
            where = "above" if limit > high else "below"
            off.append(f"The SLO, {label} of {latency_text(limit)}, is {where} the axis.")
    found = [f"The dashed red line is the SLO: {', '.join(drawn)}."] if drawn else []
    return " ".join(dict.fromkeys([*found, *off]))


@dataclass(frozen=True, slots=True)
class PlotLine:
    """One line of a panel, with a setting for each of its points."""

    style: Style
    metric: MetricName
    settings: tuple[Settings, ...]


class Styles:
    """Gives a line the same style in every panel of a plot.

    Each combination of the values of `keys` is a line. Groups of requests differ in their dashes,
    or in their colours if there are no keys.
    """

    def __init__(self, design: Design, keys: Sequence[str], metrics: Sequence[MetricName]) -> None:
        self._keys = tuple(keys)
        self._values = [values for values, _ in design.divided(keys)]
        self._groups = list({metric.group: metric for metric in metrics}.values())
        self._all_keys = design.keys

    def of(self, values: Settings, metric: MetricName) -> Style:
        line = next(i for i, other in enumerate(self._values) if same(other) == same(values))
        group = next(i for i, other in enumerate(self._groups) if other.group == metric.group)
        text = setting_text(values, self._all_keys)
        if len(self._groups) < 2:
            return numbered_style(text, line)
        if not self._keys:
            return numbered_style(metric.group_label, group)
        return numbered_style(f"{text}: {metric.group_label}", line, group)

    @property
    def legend(self) -> list[Style]:
        """The styles of all lines, in the sweep's order."""
        return [self.of(values, metric) for values in self._values for metric in self._groups]

    def lines(self, panel: Design, metrics: Sequence[MetricName]) -> list[PlotLine]:
        return [
            PlotLine(self.of(values, metric), metric, part.settings)
            for values, part in panel.divided(self._keys)
            for metric in metrics
        ]


def intervals(data: SweepResults, line: PlotLine) -> list[Point]:
    """The points of a line at which its metric is defined, in the sweep's order."""
    found = [(setting, data.interval(setting, line.metric)) for setting in line.settings]
    return [(setting, interval) for setting, interval in found if interval.mean is not None]


def values_with_results(
    data: SweepResults, design: Design, key: str, metrics: Sequence[MetricName]
) -> tuple[list[object], list[object]]:
    """A key's values, in order: those at which a metric is defined, and those at which none is."""
    found: tuple[list[object], list[object]] = ([], [])
    for value in design.values(key):
        settings = [setting for setting in design.settings if same(setting[key]) == same(value)]
        is_defined = any(
            data.interval(setting, metric).mean is not None
            for setting in settings
            for metric in metrics
        )
        found[0 if is_defined else 1].append(value)
    # A figure without any value keeps its axis.
    return found if found[0] else (found[1], [])


class MetricPlot:
    """What plots of metrics over a key share: their settings, lines and vertical axes.

    `y` are the metrics; `zero` says whether linear vertical axes begin at zero.
    """

    def __init__(
        self, data: SweepResults, plot: _OverKey, y: Sequence[str], zero: Zero = Zero.IF_NEAR
    ) -> None:
        self.data, self.plot = data, plot
        self.design = data.design.where(plot.where or {})
        self.metrics = panel_metrics(y)
        self.flat = [metric for group in self.metrics for metric in group]
        self.styles = Styles(self.design, plot.lines, self.flat)
        self.y_axes = {metrics: metric_axis(data, self.design, metrics, scale=plot.y_scale,
                                            label=plot.y_label, zero=zero)
                       for metrics in self.metrics}  # fmt: skip
        self.key = key_name(plot.x, self.design.keys)
        self.x_label = plot.x_label or key_label(plot.x, self.design.keys)

    def lines(self, part: PanelContent) -> list[tuple[Style, list[Point]]]:
        """The lines of a panel: their points with the intervals that its axis can show."""
        axis = self.y_axes[part.metrics]
        return [
            (
                line.style,
                [(setting, axis.shown(each)) for setting, each in intervals(self.data, line)],
            )
            for line in self.styles.lines(part.design, part.metrics)
        ]

    def panel(self, part: PanelContent, x: Axis, marks: Iterable[Mark]) -> Panel:
        """A panel with these marks, and a line at the limit that its metric has by the SLO."""
        y = self.y_axes[part.metrics].axis
        return Panel(x=x, y=y, marks=[*limit_marks(limit_of(self.data, part.metrics), y), *marks])

    def drawn(
        self,
        picture: Picture,
        ending: str,
        slug: Sequence[str],
        sentences: Sequence[str] = (),
        intervals: str = "",
        legend: Sequence[Style] = (),
    ) -> Drawn:
        """The finished figure; its caption also tells of the SLO, and of what shows `intervals`.

        The title names the metrics, and has this ending.
        """
        axes = self.y_axes.values() if intervals else ()
        more = slo_caption(self.data, self.y_axes), seeds_caption(self.data, intervals, axes)
        title = f"{titled(self.metrics)} {ending}"
        styles = legend or self.styles.legend
        keys, captions = self.design.keys, [*sentences, *more]
        return finished(picture, self.plot, keys, title, slug, captions, styles)

    @property
    def parts(self) -> list[PanelContent]:
        return parts_of(self.design, [self.plot.x, *self.plot.lines], self.metrics)


def metric_axis(
    data: SweepResults, design: Design, metrics: Sequence[MetricName], *, scale: str | None,
    label: str | None, zero: Zero,
) -> MetricAxis:  # fmt: skip
    """The axis of a panel's metrics: the same in all panels that show them."""
    shown = [data.interval(setting, metric) for setting in design.settings for metric in metrics]
    return MetricAxis.of(
        metrics, widened(data, metrics, shown), scale=scale, label=label, zero=zero
    )
