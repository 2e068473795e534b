"""The pictures of a contest: cache hits against the waits that they cost, under each traffic."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sim.contest.measures import BY_NAME, Measure
from sim.contest.results import ContestCell, ContestResults
from sim.contest.suite import SuiteTraffic
from sim.contest.tables import load_in_words
from sim.metrics.points import MeanInterval
from sim.metrics.registry import MetricName
from sim.report.figures.axes import MetricAxis, Zero
from sim.report.figures.marks import (
    GREY,
    Axis,
    Line,
    Mark,
    Panel,
    Picture,
    Style,
    numbered_style,
)
from sim.report.figures.plot_parts import Drawn, Layout, slug_of

_HITS = "cache_hit_rate_pct"
_WAITS = ("p99_ttft_ms", "max_wait_ms")
_CAPTION = (
    "Each point is a contestant, the mean over the seeds; up and to the left is better. Each"
    " panel has its own axes, so a distance may stand for a small difference. Whiskers are 95 %"
    " intervals of the difference from the reference, taken seed by seed. Which differences are"
    " sure is in the tables."
)


class _Value(NamedTuple):
    """A contestant's mean, and the ends of its whisker: both the mean if it has none."""

    mean: float
    low: float
    high: float

    @property
    def interval(self) -> MeanInterval:
        """What an axis has to make room for."""
        half_width = max(self.high - self.mean, self.mean - self.low)
        return MeanInterval(self.mean, half_width or None, 1)


class _Point(NamedTuple):
    style: Style
    x: _Value
    y: _Value

    @property
    def marks(self) -> Iterator[Line]:
        """The whiskers, and the point over them."""
        (x, x_low, x_high), (y, y_low, y_high) = self.x, self.y
        style = self.style
        for xs, ys in (((x_low, x_high), (y, y)), ((x, x), (y_low, y_high))):
            if xs[0] < xs[1] or ys[0] < ys[1]:
                yield Line(x=xs, y=ys, colour=style.colour, line=style.label, width=0.8,
                           opacity=0.7)  # fmt: skip
        yield Line(x=[x], y=[y], colour=style.colour, line=style.label, has_values=True, width=0,
                   marker=style.marker, fill=style.fill, size=8)  # fmt: skip


def draw_contest(results: ContestResults) -> dict[str, Drawn]:
    """A picture for each kind of wait, at the highest load; none if no cache had anything."""
    traffic = [each for each in results.traffic if _has_hits(results, each)]
    return {name: _draw(results, traffic, BY_NAME[name]) for name in _WAITS if traffic}


def _has_hits(results: ContestResults, traffic: SuiteTraffic) -> bool:
    cells = (ContestCell(name, traffic.name, results.loads[-1]) for name in results.contestants)
    return any(results.interval(cell, BY_NAME[_HITS]).mean for cell in cells)


def _draw(results: ContestResults, traffic: Sequence[SuiteTraffic], wait: Measure) -> Drawn:
    styles = {
        name: numbered_style(name, place)
        for place, name in enumerate(results.contest.section.contestants)
        if name in results.contestants
    }
    curve = [name for name in results.contest.section.curve if name in styles]
    ends = Style(f"{curve[0]} to {curve[-1]}", GREY, marker="") if len(curve) > 1 else None
    layout = Layout.of(len(traffic))
    panels = [_panel(results, each, wait, styles, curve, ends) for each in traffic]
    label = MetricName.of(wait.name).label
    title = f"Cache hit rate against {label}, at {load_in_words(results.loads[-1])}"
    legend = [*styles.values(), *([] if ends is None else [ends])]
    picture = Picture(panels=panels, columns=layout.columns, size_px=layout.size_px, title=title,
                      legend=legend)  # fmt: skip
    return Drawn(picture, slug_of("hits", label), title, _caption(results, traffic, ends))


def _caption(results: ContestResults, traffic: Sequence[SuiteTraffic], ends: Style | None) -> str:
    joined = ", ".join(results.contest.section.curve)
    line = "" if ends is None else f" The grey line joins {joined}."
    shown = {each.name for each in traffic}
    without = [each.name for each in results.traffic if each.name not in shown]
    left_out = f" Nothing is shared in {', '.join(without)}." if without else ""
    return f"{_CAPTION}{line}{left_out}"


def _panel(
    results: ContestResults,
    traffic: SuiteTraffic,
    wait: Measure,
    styles: dict[str, Style],
    curve: Sequence[str],
    ends: Style | None,
) -> Panel:
    points = {}
    for name, style in styles.items():
        cell = ContestCell(name, traffic.name, results.loads[-1])
        x, y = (_value(results, cell, measure) for measure in (wait, BY_NAME[_HITS]))
        if x is not None and y is not None:
            points[name] = _Point(style, x, y)
    x_axis = _axis(wait.name, [point.x for point in points.values()])
    y_axis = _axis(_HITS, [point.y for point in points.values()])
    joined = [points[name] for name in curve if name in points]
    marks: list[Mark] = []
    if ends is not None:
        xs, ys = [point.x.mean for point in joined], [point.y.mean for point in joined]
        marks.append(Line(x=xs, y=ys, colour=ends.colour, line=ends.label))
    marks += [mark for point in points.values() for mark in point.marks]
    return Panel(x=x_axis, y=y_axis, marks=marks, title=traffic.name)


def _value(results: ContestResults, cell: ContestCell, measure: Measure) -> _Value | None:
    """The mean of a cell. Its whisker is as long as the interval of the paired difference.

    Of a measure that is compared as a ratio, the whisker is as long relative to the mean.
    """
    mean, found = results.interval(cell, measure).mean, results.differences(measure).get(cell)
    if mean is None:
        return None
    if found is None or found.mean is None or found.low is None or found.high is None:
        return _Value(mean, mean, mean)
    if measure.compared == "ratio":
        low, high = (mean * (100 + end) / (100 + found.mean) for end in (found.low, found.high))
    else:
        low, high = (mean + end - found.mean for end in (found.low, found.high))
    return _Value(mean, low, high)


def _axis(name: str, shown: Sequence[_Value]) -> Axis:
    intervals = [value.interval for value in shown]
    metric = (MetricName.of(name),)
    return MetricAxis.of(metric, intervals, scale=None, label=None, zero=Zero.IF_SHOWN).axis
