"""Plots of a sweep: those in its scenario, or else a choice that fits it; or any single plot."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from pydantic import ValidationError

from sim.core.errors import InputError, dotted
from sim.metrics.registry import COLD, HOT, MetricName
from sim.report.figures.cdf import draw_cdf
from sim.report.figures.key_text import last_part, makes_load
from sim.report.figures.over_key import (
    default_metric,
    draw_bars,
    draw_curve,
    draw_load,
    draw_scatter,
)
from sim.report.figures.planes import draw_heat, draw_trade_off
from sim.report.figures.plot_check import (
    check_report,
    is_number,
    num_panels,
    plot_keys,
    pools_of,
    tenants_of,
)
from sim.report.figures.plot_parts import Drawn
from sim.scenario.load import LoadedScenario
from sim.scenario.report_section import (
    BarsPlot,
    CdfPlot,
    CurvePlot,
    HeatPlot,
    LoadPlot,
    Plot,
    ReportSection,
    ScatterPlot,
    TradeOffPlot,
)
from sim.sweep.plan import SEED, Plan, value_at
from sim.sweep.results import Design, SweepResults

_DRAWN_BY: Mapping[str, Callable[[SweepResults, Any], Drawn]] = {
    "curve": draw_curve,
    "bars": draw_bars,
    "trade-off": draw_trade_off,
    "heat": draw_heat,
    "cdf": draw_cdf,
    "load": draw_load,
    "scatter": draw_scatter,
}


def draw_plot(data: SweepResults, plot: Plot) -> Drawn:
    """Draw a plot in which `check_report` found no problem."""
    return _DRAWN_BY[plot.kind](data, plot)


def report_section(content: Mapping[str, Any], data: SweepResults) -> ReportSection:
    """What a `report` section says, checked against the sweep that it is about.

    Raises InputError: it is not a valid section, or names a key or metric that the sweep lacks; the
    message begins with the key path.
    """
    try:
        section = ReportSection.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(f"{dotted(('report', *first['loc']))}: {first['msg']}") from None
    tenants = tenants_of(data.scenario) | set(data.tenants)
    if problem := check_report(section, data.design, tenants, pools_of(data.scenario)):
        raise InputError(f"{dotted(problem.path)}: {problem.reason}")
    return section


def draw_report(data: SweepResults, section: ReportSection) -> Iterator[Drawn]:
    """The plots that the section asks for; without any, those that fit the sweep."""
    for plot in section.plots or automatic_plots(data):
        yield draw_plot(data, plot)


_TTFT, _ITL, _HITS = "p99_ttft_ms", "p99_itl_ms", "cache_hit_rate_pct"
_FAIRNESS_T = "t_ms"
_MAX_GRID_VALUES = 12
_MAX_LINES = 7
# More panels would hide the rest of the page.
_MAX_PANELS = 6


def automatic_plots(data: SweepResults) -> list[Plot]:
    """Plots that fit the sweep, the most telling ones first.

    A random sweep gets a scatter plot for each numeric key. Other sweeps get a trade-off along
    FAIRNESS_T, a curve against each numeric key (if the key makes load: with goodput), heat maps
    over the first two numeric keys that make no load, bars and distributions by each other key, and
    the distributions of hot and cold requests. Each value of one other key has a line of its own:
    of one without numbers, if there is one.
    """
    design = data.design
    if _is_random(design):
        plots: list[Plot] = [_scatter(key) for key in design.keys if _is_numeric(design, key)]
    else:
        deciding = design.undecided(())
        numeric = [key for key in deciding if _is_numeric(design, key)]
        plots = list(_of_grid(data, numeric, [key for key in deciding if key not in numeric]))
    fitting = (_narrowed(data, plot) for plot in plots)
    return [plot for plot in fitting if plot is not None]


def _is_numeric(design: Design, key: str) -> bool:
    values = design.values(key)
    numbers = [value for value in values if is_number(value)]
    return len(numbers) > 1 and all(value is None or is_number(value) for value in values)


def _is_random(design: Design) -> bool:
    """Whether values seem to be drawn at random.

    They do if not all combinations were run and a key has more values than a user would list.
    """
    sizes = {key: len(design.values(key)) for key in design.keys}
    return len(design.settings) < prod(sizes.values()) and any(
        size > _MAX_GRID_VALUES and _is_numeric(design, key) for key, size in sizes.items()
    )


def _of_grid(data: SweepResults, numeric: Sequence[str], named: Sequence[str]) -> Iterator[Plot]:
    few = [key for key in (*named, *numeric) if len(data.design.values(key)) <= _MAX_LINES]
    for key in numeric:
        if last_part(key) == _FAIRNESS_T:
            lines = _first_other(few, key)
            yield TradeOffPlot(kind="trade-off", x=_TTFT, y=_HITS, along=key, lines=lines)
    parts = _hot_and_cold_ttft(data)
    for key in numeric:
        lines = _first_other(few, key)
        yield _against(data, key, lines)
        if parts and last_part(key) == _FAIRNESS_T:
            yield CurvePlot(kind="curve", x=key, y=parts, lines=lines)
    settings = [key for key in numeric if not makes_load(key)]
    if len(settings) > 1:
        for metric in (_TTFT, "output_throughput"):
            yield HeatPlot(kind="heat", x=settings[0], y=settings[1], value=metric)
    yield from _by_name(data, numeric, named, few)


def _by_name(
    data: SweepResults, numeric: Sequence[str], named: Sequence[str], few: Sequence[str]
) -> Iterator[Plot]:
    parts = _hot_and_cold_ttft(data)
    for key in named:
        others = _first_other([other for other in few if other in named], key)
        # The first key needs no bars if the plots against numbers have a line for each value.
        if not numeric or key not in few[:1]:
            yield BarsPlot(kind="bars", x=key, y=(_TTFT, _HITS), lines=others)
            if parts:
                yield BarsPlot(kind="bars", x=key, y=parts)
        yield CdfPlot(kind="cdf", lines=(key,))
    if not named:
        yield CdfPlot(kind="cdf", lines=tuple(numeric[:1]))
    yield CdfPlot(kind="cdf", of=("all", HOT, COLD))


def _first_other(keys: Sequence[str], key: str) -> tuple[str, ...]:
    return tuple(other for other in keys if other != key)[:1]


def _against(data: SweepResults, key: str, lines: tuple[str, ...]) -> Plot:
    if makes_load(key):
        limits = [name for name in data.slo_limits if name != _TTFT]
        return LoadPlot(kind="load", x=key, y=(default_metric(data), _TTFT, *limits), lines=lines)
    if last_part(key) == _FAIRNESS_T:
        return CurvePlot(kind="curve", x=key, y=(_TTFT, _HITS), lines=lines)
    return CurvePlot(kind="curve", x=key, y=(_TTFT, _ITL, "output_throughput"), lines=lines)


def _hot_and_cold_ttft(data: SweepResults) -> tuple[str, ...]:
    """The names of mean TTFT of hot and of cold requests; empty unless both are defined."""
    names = [f"{group}.mean_ttft_ms" for group in (HOT, COLD)]
    return tuple(names) if all(_is_defined(data, name) for name in names) else ()


def _is_defined(data: SweepResults, name: str) -> bool:
    metric = MetricName.of(name)
    return any(
        metric.value(summary) is not None
        for setting in data.design.settings
        for summary in data.summaries(setting)
    )


def _scatter(key: str) -> Plot:
    return ScatterPlot(kind="scatter", x=key, y=(_TTFT, "output_throughput"))


def _narrowed(data: SweepResults, plot: Plot) -> Plot | None:
    """The plot; if it has too many panels, other numeric keys are fixed at their middle values.

    Returns None if even then too many panels remain.
    """
    where: dict[str, object] = {}
    named = {key for keys in plot_keys(plot).values() for key in keys}
    free = [key for key in data.design.keys if key not in named and _is_numeric(data.design, key)]
    for key in (None, *reversed(free)):
        if key is not None:
            values = data.design.values(key)
            where[key] = values[len(values) // 2]
        tried = plot.model_copy(update={"where": where or None})
        if num_panels(tried, data.design.where(where)) <= _MAX_PANELS:
            return tried
    return None


def check_report_section(loaded: LoadedScenario, plan: Plan | None) -> None:
    """Check that everything that the plots name exists."""
    section = loaded.scenario.report
    if section is None:
        return
    design = None if plan is None else _design(plan)
    raw = loaded.raw
    if problem := check_report(section, design, tenants_of(raw), pools_of(raw)):
        raise loaded.error(problem.path, problem.reason)


def _design(plan: Plan) -> Design:
    keys = [key for key in plan.keys if key != SEED]
    base = plan.base.scenario.model_dump(mode="json")
    defaults = {key: value_at(base, key) for key in keys}
    return Design.of(keys, [{**defaults, **point.settings} for point in plan.points])
