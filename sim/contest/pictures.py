"""The pictures of a contest: cache hits against the waits that they cost, under each traffic."""

from collections.abc import Sequence
from typing import NamedTuple

from sim.contest.measures import BY_NAME, Measure
from sim.contest.results import Cell, ContestResults
from sim.contest.suite import Traffic
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
    " panel has its own axes, so a distance may stand for a small difference. Which differences are"
    " sure is in the tables."
)


class _Point(NamedTuple):
    style: Style
    x: MeanInterval
    y: MeanInterval


def draw_contest(results: ContestResults) -> dict[str, Drawn]:
    """A picture for each kind of wait, at the highest load; none if no cache had anything."""
    traffic = [each for each in results.traffic if _has_hits(results, each)]
    return {name: _draw(results, traffic, BY_NAME[name]) for name in _WAITS if traffic}


def _has_hits(results: ContestResults, traffic: Traffic) -> bool:
    cells = (Cell(name, traffic.name, results.loads[-1]) for name in results.contestants)
    return any(results.interval(cell, BY_NAME[_HITS]).mean for cell in cells)


def _draw(results: ContestResults, traffic: Sequence[Traffic], wait: Measure) -> Drawn:
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


def _caption(results: ContestResults, traffic: Sequence[Traffic], ends: Style | None) -> str:
    joined = ", ".join(results.contest.section.curve)
    line = "" if ends is None else f" The grey line joins {joined}."
    shown = {each.name for each in traffic}
    without = [each.name for each in results.traffic if each.name not in shown]
    left_out = f" Nothing is shared in {', '.join(without)}." if without else ""
    return f"{_CAPTION}{line}{left_out}"


def _panel(
    results: ContestResults,
    traffic: Traffic,
    wait: Measure,
    styles: dict[str, Style],
    curve: Sequence[str],
    ends: Style | None,
) -> Panel:
    points = {}
    for name, style in styles.items():
        cell = Cell(name, traffic.name, results.loads[-1])
        point = _Point(style, *(results.interval(cell, each) for each in (wait, BY_NAME[_HITS])))
        if point.x.mean is not None and point.y.mean is not None:
            points[name] = point
    x = _axis(wait.name, [point.x for point in points.values()])
    y = _axis(_HITS, [point.y for point in points.values()])
    joined = [points[name] for name in curve if name in points]
    marks: list[Mark] = []
    if ends is not None:
        marks.append(Line(x=[point.x.mean or 0.0 for point in joined],
                          y=[point.y.mean or 0.0 for point in joined],
                          colour=ends.colour, line=ends.label))  # fmt: skip
    marks += [
        Line(x=[point.x.mean or 0.0], y=[point.y.mean or 0.0], colour=point.style.colour,
             line=point.style.label, has_values=True, width=0, marker=point.style.marker,
             fill=point.style.fill, size=8)
        for point in points.values()
    ]  # fmt: skip
    return Panel(x=x, y=y, marks=marks, title=traffic.name)


def _axis(name: str, shown: Sequence[MeanInterval]) -> Axis:
    means = [MeanInterval(interval.mean, None, interval.count) for interval in shown]
    metric = (MetricName.of(name),)
    return MetricAxis.of(metric, means, scale=None, label=None, zero=Zero.IF_SHOWN).axis
