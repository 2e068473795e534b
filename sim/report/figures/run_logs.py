"""Pictures of run logs: the distribution of TTFT, one run over time, and several compared."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

from sim.core.units import NS_PER_S
from sim.metrics.saturation import log_end_ns
from sim.metrics.timeline import Timeline, timeline
from sim.report.figures.run_panels import (
    colours,
    draw_hit_rate,
    draw_kv_use,
    draw_queue,
    draw_sizes,
    draw_throughput,
    draw_trade_off,
    draw_ttft_cdf,
)
from sim.report.plot_style import new_figure, plain_text, styled, time_unit
from sim.runlog import RunLog


@styled
def plot_ttft_cdf(logs: Mapping[str, RunLog]) -> Figure:
    """The distribution of TTFT over finished requests: one curve for each run, with its p99."""
    figure = new_figure(1_000, 640)
    axes = figure.add_subplot()
    draw_ttft_cdf(axes, logs)
    axes.set_title("Time to first token")
    _legend_above(figure, logs)
    return figure


def plot_timeline(log: RunLog) -> Figure:
    """One run over time: requests waiting and running, KV use, hit rate, throughput."""
    return draw_timeline(timeline(log), log)


@styled
def draw_timeline(data: Timeline, log: RunLog) -> Figure:
    """Like `plot_timeline`, but takes a timeline, such as one from a file; `log` needs no steps."""
    unit_ns, unit = time_unit(log_end_ns(log))
    unit_s = unit_ns / NS_PER_S
    figure = new_figure(1_200, 1_100)
    panels = figure.subplots(4, 1, sharex=True)
    sizes, kv, hits, rates = panels
    draw_sizes(sizes, data, unit_s)
    draw_kv_use(kv, data, unit_s)
    draw_hit_rate(hits, {"hit rate": log})
    draw_throughput(rates, data, unit_s)
    titles = ("Requests", "KV pool", "Prompt tokens found cached, by admission", "Throughput")
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title)
        axes.margins(x=0)
        if axes is not hits:
            _legend_in_title_row(axes)
    rates.set_xlabel(f"time ({unit})")
    figure.align_ylabels()
    return figure


@styled
def draw_pool(data: Timeline, log: RunLog) -> Figure:
    """What the servers of a pool do over time; `log` is the whole run's, and needs no steps."""
    unit_ns, unit = time_unit(log_end_ns(log))
    unit_s = unit_ns / NS_PER_S
    figure = new_figure(1_200, 830)
    panels = sizes, kv, rates = figure.subplots(3, 1, sharex=True)
    draw_sizes(sizes, data, unit_s)
    draw_kv_use(kv, data, unit_s)
    draw_throughput(rates, data, unit_s)
    for axes, title in zip(panels, ("Requests", "KV pool", "Throughput"), strict=True):
        axes.set_title(title)
        axes.margins(x=0)
        _legend_in_title_row(axes)
    rates.set_xlabel(f"time ({unit})")
    figure.align_ylabels()
    return figure


@styled
def plot_comparison(logs: Mapping[str, RunLog], title: str) -> Figure:
    """Two to four runs in one picture: TTFT, the trade-off, hit rate and queue over time."""
    unit = time_unit(max(log_end_ns(log) for log in logs.values()))[1]
    figure = new_figure(1_200, 800)
    (cdf, trade_off), (hits, queue) = figure.subplots(2, 2)
    draw_ttft_cdf(cdf, logs)
    cdf.set_title("Time to first token")
    draw_trade_off(trade_off, logs)
    trade_off.set_title("Cache hits against the slowest first tokens")
    draw_hit_rate(hits, logs)
    hits.set_title("Cache hit rate, by admission")
    draw_queue(queue, logs)
    queue.set_title("Queue")
    for axes in (hits, queue):
        axes.margins(x=0)
        axes.set_xlim(left=0)
        axes.set_xlabel(f"time ({unit})")
    legend = _legend_above(figure, logs)
    legend.set_title(plain_text(title), prop=FontProperties(size=14, weight="bold"))
    legend.set_alignment("left")
    return figure


def _legend_above(figure: Figure, logs: Mapping[str, RunLog]) -> Legend:
    handles = [Line2D([], [], color=colour) for colour in colours(logs).values()]
    labels = [plain_text(name) for name in logs]
    return figure.legend(handles, labels, loc="outside upper left", ncols=len(logs))


def _legend_in_title_row(axes: Axes) -> None:
    """A legend to the right of the title, where it never covers data."""
    axes.legend(
        *axes.get_legend_handles_labels(),
        loc="lower right",
        bbox_to_anchor=(1.0, 0.99),
        ncols=3,
        borderaxespad=0.0,
        handlelength=1.2,
    )
