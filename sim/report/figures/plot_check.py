"""Checks that a `report` section fits a sweep: its keys are swept, its metrics exist."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sim.core.errors import KeyPath, describe, did_you_mean, shorten
from sim.metrics.registry import COLD, HOT, TENANTS, Better, MetricName, metric_names
from sim.scenario.report_section import (
    CdfPlot,
    CurvePlot,
    HeatPlot,
    LoadPlot,
    Plot,
    ReportSection,
    ScatterPlot,
    TradeOffPlot,
)
from sim.sweep.results import Design, same

MAX_PANELS = 12
ALL = "all"


class Problem(NamedTuple):
    """A key of the scenario, and what is wrong with it."""

    path: KeyPath
    reason: str


def check_report(
    section: ReportSection, design: Design | None, tenants: Iterable[str], pools: Iterable[str] = ()
) -> Problem | None:
    """Find the first thing that cannot be drawn.

    `design` is None without a sweep; `tenants` and `pools` are names.
    """
    if section.plots is None:
        return None
    if design is None:
        return Problem(("report", "plots"), "there is no sweep to draw")
    names, known = sorted(tenants), metric_names(sorted(tenants), sorted(pools))
    for number, plot in enumerate(section.plots):
        for key, reason in _problems(plot, design, names, known):
            return Problem(("report", "plots", number, *key), reason)
    return None


def tenants_of(*data: object) -> set[str]:
    """All names that are values of a key `tenant`, or of a key path that ends in `.tenant`."""
    return {
        name
        for key, name in _keys_with_values(data)
        if key.rpartition(".")[2] == "tenant" and isinstance(name, str) and name
    }


def pools_of(*data: object) -> set[str]:
    """All names of the server pools in mappings that are values of a key `pools`."""
    found = (value for key, value in _keys_with_values(data) if key == "pools")
    return {str(name) for pools in found if isinstance(pools, Mapping) for name in pools}


def _keys_with_values(data: object) -> Iterator[tuple[str, object]]:
    """Every key of mappings at any depth with its value, or with each item of a list."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from ((str(key), item) for item in _items(value))
            yield from _keys_with_values(value)
    elif isinstance(data, list | tuple):
        for item in data:
            yield from _keys_with_values(item)


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else [value]


def plot_keys(plot: Plot) -> dict[str, tuple[str, ...]]:
    """The swept keys that a plot names, by the plot's own key (`x`, `lines`); without `where`."""
    lines = plot.lines if not isinstance(plot, HeatPlot) else ()
    match plot:
        case HeatPlot():
            return {"x": (plot.x,), "y": (plot.y,), "against": tuple(plot.against or ())}
        case TradeOffPlot():
            return {"along": (plot.along,), "lines": lines}
        case CdfPlot():
            return {"lines": lines}
        case _:
            return {"x": (plot.x,), "lines": lines}


def plot_metrics(plot: Plot) -> dict[str, tuple[str, ...]]:
    """The metrics that a plot names, by the plot's own key (`y`, `value`)."""
    match plot:
        case HeatPlot():
            return {"value": (plot.value,)}
        case TradeOffPlot():
            return {"x": (plot.x,), "y": (plot.y,)}
        case CdfPlot():
            return {}
        case _:
            return {"y": plot.y or ()}


def panel_metrics(metrics: Sequence[str]) -> list[tuple[MetricName, ...]]:
    """Metrics by panel: one panel has a metric of all groups of requests, such as hot and cold."""
    panels: dict[str, list[MetricName]] = {}
    for metric in map(MetricName.of, metrics):
        panels.setdefault(metric.base, []).append(metric)
    return [tuple(panel) for panel in panels.values()]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _problems(
    plot: Plot, design: Design, tenants: list[str], known: list[str]
) -> Iterator[Problem]:
    for place, keys in {**plot_keys(plot), "where": tuple(plot.where or ())}.items():
        yield from (Problem((place,), _not_swept(key, design)) for key in keys
                    if key not in design.keys)  # fmt: skip
    for place, metrics in plot_metrics(plot).items():
        yield from (Problem((place,), _unknown("metric", name, known)) for name in metrics
                    if name not in known)  # fmt: skip
    if isinstance(plot, CdfPlot):
        yield from _group_problems(plot, tenants)
    if isinstance(plot, HeatPlot) and plot.against is not None:
        if MetricName.of(plot.value).better is Better.NEITHER:
            yield Problem(("value",), "is neither better when it is higher nor when it is lower")
        yield from _value_problems("against", plot.against, design)
    yield from _where_problems(plot, design)
    yield from _size_problems(plot, design.where(plot.where or {}))


def _group_problems(plot: CdfPlot, tenants: list[str]) -> Iterator[Problem]:
    known = [ALL, HOT, COLD, *(f"{TENANTS}.{name}" for name in tenants)]
    for group in plot.of:
        if group not in known:
            yield Problem(("of",), _unknown("part of the requests", group, known))
    if plot.metric != "ttft_ms" and plot.of != (ALL,):
        yield Problem(("of",), f"can only be all with {plot.metric}")


def _value_problems(place: str, wanted: Mapping[str, Any], design: Design) -> Iterator[Problem]:
    for key, values in wanted.items():
        known = {same(value) for value in design.values(key)}
        for value in _items(values):
            if same(value) not in known:
                yield Problem((place, key), f"the sweep has no value {shorten(same(value))}")


def _where_problems(plot: Plot, design: Design) -> Iterator[Problem]:
    yield from _value_problems("where", plot.where or {}, design)
    if not design.where(plot.where or {}).settings:
        yield Problem(("where",), "leaves no setting of the sweep")


def _size_problems(plot: Plot, design: Design) -> Iterator[Problem]:
    """Problems with the values of `x` in the settings that `where` leaves, or with the panels."""
    if isinstance(plot, CurvePlot | ScatterPlot | LoadPlot):
        for value in design.values(plot.x):
            if value is not None and not is_number(value):
                hint = f"is drawn against numbers, and has the value {describe(value)}"
                yield Problem(("x",), f"{hint} (kind bars takes any)")
    found = num_panels(plot, design)
    if found > MAX_PANELS:
        free = () if isinstance(plot, ScatterPlot) else design.undecided(_named(plot))
        hint = f" (narrow it down with where: {', '.join(free)})" if free else ""
        yield Problem((), f"would have {found} panels, above {MAX_PANELS}{hint}")


def num_panels(plot: Plot, design: Design) -> int:
    """How many panels a plot of these settings has."""
    if isinstance(plot, HeatPlot) and plot.against is not None:
        return 1
    shown = 1
    if not isinstance(plot, TradeOffPlot | CdfPlot):
        names = [name for names in plot_metrics(plot).values() for name in names]
        shown = max(1, len(panel_metrics(names)))
    if isinstance(plot, ScatterPlot):
        return shown
    return shown * len(design.panels(_named(plot)))


def _named(plot: Plot) -> list[str]:
    return [key for keys in plot_keys(plot).values() for key in keys]


def _not_swept(key: str, design: Design) -> str:
    near = did_you_mean(key, design.keys)
    hint = f"did you mean {near}?" if near else f"swept: {', '.join(design.keys) or 'nothing'}"
    return f"{shorten(key)} is not swept ({hint})"


def _unknown(what: str, name: str, known: Sequence[str]) -> str:
    near = did_you_mean(name, known)
    hint = f"did you mean {near}?" if near else "docs/how-to/report.md lists them"
    return f"unknown {what} {shorten(repr(name))} ({hint})"
