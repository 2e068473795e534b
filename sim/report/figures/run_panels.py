"""Functions that draw run logs on given axes, one panel each."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from sim.core.arrays import Float64
from sim.metrics.latencies import finished_mask, request_latencies
from sim.metrics.pools import sizes
from sim.metrics.rates import admitted_mask, hit_rate_over_time, hit_rate_pct
from sim.metrics.registry import TTFT, metric
from sim.metrics.saturation import log_end_ns
from sim.metrics.series import MAX_POINTS
from sim.metrics.timeline import NUM_WINDOWS, Timeline
from sim.report.figures.canvas import Style
from sim.report.figures.cdf_frame import P99, draw_p99_dot, draw_p99_line, put_percent_axis
from sim.report.figures.labels import Label, place_labels
from sim.report.figures.ownership import beside
from sim.report.plot_style import GREY, PALETTE, latency_text, put_log_latency_axis, time_unit
from sim.runlog import RunLog

# The number of a timeline's windows that make one window of the throughput.
_RATE_WINDOW = NUM_WINDOWS // 120
# Fewer points than pixels, so that several queues over each other stay legible.
_QUEUE_POINTS = 300
_TEXT_COLOUR = "#222222"
_HIT_RATE = f"{metric('total_cached_tokens').label} (%)"


def colours(logs: Mapping[str, RunLog]) -> dict[str, str]:
    return {name: PALETTE[row % len(PALETTE)] for row, name in enumerate(logs)}


def ttft_ms(log: RunLog) -> Float64:
    """TTFTs of the finished requests, warm-up aside."""
    requests = log.measured().requests
    return request_latencies(requests).ttft_ms[finished_mask(requests)]


def draw_ttft_cdf(axes: Axes, logs: Mapping[str, RunLog]) -> None:
    """Share of finished requests against TTFT, the 99th percentile marked on each curve."""
    draw_p99_line(axes)
    for name, colour in colours(logs).items():
        samples = ttft_ms(logs[name])
        if not len(samples):
            continue
        percent = np.linspace(0, 100, min(len(samples), MAX_POINTS))
        axes.plot(np.percentile(samples, percent), percent, color=colour, label=name)
        p99 = float(np.percentile(samples, P99))
        axes.plot([p99, p99], [0, P99], color=colour, linewidth=0.9, linestyle=(0, (1, 2)),
                  label=beside(name))  # fmt: skip
        draw_p99_dot(axes, p99, Style(name, colour))
    put_log_latency_axis(axes, f"{TTFT.words} (log scale)")
    put_percent_axis(axes, "requests (%)")


def draw_hit_rate(axes: Axes, logs: Mapping[str, RunLog]) -> None:
    """Prompt tokens found cached, by time of admission."""
    for name, colour in colours(logs).items():
        middles_ns, percent = hit_rate_over_time(logs[name])
        axes.plot(middles_ns / _unit_ns(logs), percent, color=colour, label=name)
    axes.set_ylim(0, 100)
    axes.set_ylabel(_HIT_RATE)


def draw_queue(axes: Axes, logs: Mapping[str, RunLog]) -> None:
    """Waiting requests over all replicas."""
    for name, colour in colours(logs).items():
        waiting, _ = sizes(logs[name])
        queue = waiting.thinned(log_end_ns(logs[name]), _QUEUE_POINTS)
        axes.plot(queue.t_ns / _unit_ns(logs), queue.value, color=colour, label=name,
                  drawstyle="steps-post", linewidth=1.3)  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_ylabel("waiting requests")


def draw_trade_off(axes: Axes, logs: Mapping[str, RunLog]) -> None:
    """One dot for each run: hit rate against p99 TTFT; further up and left is better."""
    points = {
        name: (float(np.percentile(samples, P99)),
               hit_rate_pct(log.requests, admitted_mask(log.requests)) or 0.0)
        for name, log in logs.items()
        if len(samples := ttft_ms(log))
    }  # fmt: skip
    for name, (p99_ms, hit_pct) in points.items():
        axes.plot(p99_ms, hit_pct, "o", color=colours(logs)[name], markersize=11, label=name)
    axes.set_ylabel(_HIT_RATE)
    _frame(axes, points)
    put_log_latency_axis(axes, f"p99 {TTFT.words} (log scale)")
    place_labels(axes, [
        Label(p99_ms, hit_pct, f"{name}: {hit_pct:.1f} %, {latency_text(p99_ms)}", _TEXT_COLOUR)
        for name, (p99_ms, hit_pct) in points.items()
    ])  # fmt: skip
    axes.annotate("better", xy=(0.03, 0.97), xytext=(0.14, 0.87), xycoords="axes fraction",
                  textcoords="axes fraction", color=GREY, ha="center", va="center",
                  arrowprops={"arrowstyle": "->", "color": GREY})  # fmt: skip


def draw_sizes(axes: Axes, timeline: Timeline, unit_s: float) -> None:
    """Waiting and running requests over all replicas."""
    for label, size, colour in (
        ("waiting", timeline.waiting, PALETTE[1]),
        ("running", timeline.running, PALETTE[0]),
    ):
        axes.plot(timeline.t_s / unit_s, size, color=colour, label=label, drawstyle="steps-post",
                  linewidth=1.3)  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_ylabel("requests")


def draw_kv_use(axes: Axes, timeline: Timeline, unit_s: float) -> None:
    """The pool's split into used, evictable and free tokens, stacked to 100 %."""
    parts = (timeline.used_tokens, timeline.evictable_tokens, timeline.free_tokens)
    pool = np.maximum(np.sum(parts, axis=0), 1)
    shares = [100 * part / pool for part in parts]
    axes.stackplot(timeline.t_s / unit_s, shares, labels=["used", "evictable", "free"], step="post",
                   colors=["#0072B2", "#56B4E9", "#dddddd"])  # fmt: skip
    axes.set_ylim(0, 100)
    axes.set_ylabel("KV tokens (%)")


def draw_throughput(axes: Axes, timeline: Timeline, unit_s: float) -> None:
    """Prompt tokens computed and tokens decoded, both per second, in 120 windows."""
    edges_s = np.append(timeline.t_s, timeline.t_s[-1:] + timeline.window_s)[::_RATE_WINDOW]
    for rate, label, colour in (
        (timeline.prefill_tokens_per_s, "prefill (new tokens)", PALETTE[1]),
        (timeline.decode_tokens_per_s, "decode", PALETTE[0]),
    ):
        means = rate.reshape(-1, _RATE_WINDOW).mean(axis=1)
        if len(means):
            axes.stairs(means, edges_s / unit_s, baseline=None, color=colour, label=label)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("tokens/s")


def _unit_ns(logs: Mapping[str, RunLog]) -> int:
    return time_unit(max(log_end_ns(log) for log in logs.values()))[0]


def _frame(axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Set limits with room for labels; the hit rate spans at least 10 %, so noise looks small."""
    if not points:
        return
    p99s_ms, hits_pct = (np.array(values) for values in zip(*points.values(), strict=True))
    axes.set_xlim(p99s_ms.min() / 2.5, p99s_ms.max() * 2.5)
    middle, half = (hits_pct.max() + hits_pct.min()) / 2, np.ptp(hits_pct) / 2
    half = max(5.0, 1.7 * half)
    axes.set_ylim(middle - half, middle + half)
