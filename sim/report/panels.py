"""Single panels of the pictures: each draws run logs on axes it is given."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from sim.metrics.latencies import finished_mask, request_latencies
from sim.metrics.saturation import log_end_ns
from sim.metrics.series import MAX_POINTS, StepSeries, occupancy
from sim.metrics.timeline import NUM_WINDOWS, Timeline
from sim.report.plot_style import (
    GREY,
    PALETTE,
    latency_text,
    log_latency_axis,
    plain_text,
    time_unit,
)
from sim.runlog import NOT_YET_NS, RunLog

Float64 = NDArray[np.float64]

_MIN_WINDOWS, _MAX_WINDOWS, _REQUESTS_PER_WINDOW = 8, 40, 50
# Windows of a timeline that are one of the throughput.
_RATE_WINDOW = NUM_WINDOWS // 120
# Fewer points than pixels: several queues over each other stay legible.
_QUEUE_POINTS = 300
_LABEL_POINTS = 14.0


def colours(logs: Mapping[str, RunLog]) -> dict[str, str]:
    return {name: PALETTE[row % len(PALETTE)] for row, name in enumerate(logs)}


def ttft_ms(log: RunLog) -> Float64:
    """TTFTs of the finished requests."""
    return request_latencies(log.requests).ttft_ms[finished_mask(log.requests)]


def hit_rate_pct(log: RunLog) -> float:
    """Cached / prompt tokens of the admitted requests; NaN without any."""
    admitted = log.requests.scheduled_ns != NOT_YET_NS
    num_prompt = int(log.requests.prompt_tokens[admitted].sum())
    num_cached = int(log.requests.cached_tokens[admitted].sum())
    return 100 * num_cached / num_prompt if num_prompt else float("nan")


def hit_rate_over_time(log: RunLog) -> tuple[Float64, Float64]:
    """Hit rate of the requests admitted in equal windows of time, and the windows' middles (ns).

    Windows hold 50 requests on average, within 8 to 40 windows; empty ones are left out.
    """
    admitted = log.requests.scheduled_ns != NOT_YET_NS
    at_ns = log.requests.scheduled_ns[admitted]
    if not len(at_ns):
        return np.zeros(0), np.zeros(0)
    num_windows = int(np.clip(len(at_ns) // _REQUESTS_PER_WINDOW, _MIN_WINDOWS, _MAX_WINDOWS))
    edges_ns = np.linspace(at_ns.min(), at_ns.max() + 1, num_windows + 1)
    cached, _ = np.histogram(at_ns, edges_ns, weights=log.requests.cached_tokens[admitted])
    prompt, _ = np.histogram(at_ns, edges_ns, weights=log.requests.prompt_tokens[admitted])
    middles_ns, some = (edges_ns[:-1] + edges_ns[1:]) / 2, prompt > 0
    return middles_ns[some], 100 * cached[some] / prompt[some]


def draw_ttft_cdf(axes: Axes, logs: Mapping[str, RunLog]) -> None:
    """Share of finished requests against TTFT, the 99th percentile marked on each curve."""
    axes.axhline(99, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate("p99", (1, 99), xycoords=("axes fraction", "data"), xytext=(3, 0),
                  textcoords="offset points", va="center", color=GREY)  # fmt: skip
    for name, colour in colours(logs).items():
        samples = ttft_ms(logs[name])
        if not len(samples):
            continue
        percent = np.linspace(0, 100, min(len(samples), MAX_POINTS))
        axes.plot(np.percentile(samples, percent), percent, color=colour, label=name)
        p99 = float(np.percentile(samples, 99))
        axes.plot([p99, p99], [0, 99], color=colour, linewidth=0.9, linestyle=(0, (1, 2)))
        axes.plot(p99, 99, "o", color=colour, markersize=6, markeredgecolor="white", zorder=3)
    log_latency_axis(axes, "time to first token (log scale)")
    axes.set_ylim(0, 103)
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.set_ylabel("requests (%)")


def draw_hit_rate(axes: Axes, logs: Mapping[str, RunLog]) -> None:
    """Prompt tokens found cached, by time of admission."""
    for name, colour in colours(logs).items():
        middles_ns, percent = hit_rate_over_time(logs[name])
        axes.plot(middles_ns / _unit_ns(logs), percent, color=colour, label=name)
    axes.set_ylim(0, 100)
    axes.set_ylabel("cached prompt tokens (%)")


def draw_queue(axes: Axes, logs: Mapping[str, RunLog]) -> None:
    """Waiting requests over all replicas."""
    for name, colour in colours(logs).items():
        log = logs[name]
        queue = occupancy(log.steps, log.requests, log.steps.queue)
        _draw_steps(
            axes, queue.thinned(log_end_ns(log), _QUEUE_POINTS), _unit_ns(logs), colour, name
        )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("waiting requests")


def draw_trade_off(axes: Axes, logs: Mapping[str, RunLog]) -> None:
    """One dot a run: hit rate against p99 TTFT; upper left is better at both."""
    points = {
        name: (float(np.percentile(samples, 99)), hit_rate_pct(log))
        for name, log in logs.items()
        if len(samples := ttft_ms(log))
    }
    for name, (p99_ms, hit_pct) in points.items():
        axes.plot(p99_ms, hit_pct, "o", color=colours(logs)[name], markersize=11, label=name)
    axes.set_ylabel("cached prompt tokens (%)")
    _frame(axes, points)
    log_latency_axis(axes, "p99 time to first token (log scale)")
    _label_points(axes, points)
    axes.annotate("better", xy=(0.03, 0.97), xytext=(0.14, 0.87), xycoords="axes fraction",
                  textcoords="axes fraction", color=GREY, ha="center", va="center",
                  arrowprops={"arrowstyle": "->", "color": GREY})  # fmt: skip


def draw_sizes(axes: Axes, found: Timeline, unit_s: float) -> None:
    """Waiting and running requests over all replicas."""
    for label, size, colour in (
        ("waiting", found.waiting, PALETTE[1]),
        ("running", found.running, PALETTE[0]),
    ):
        axes.plot(found.t_s / unit_s, size, color=colour, label=label, drawstyle="steps-post",
                  linewidth=1.3)  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_ylabel("requests")


def draw_kv_use(axes: Axes, found: Timeline, unit_s: float) -> None:
    """The pool's split into used, evictable and free tokens, stacked to 100 %."""
    parts = (found.used_tokens, found.evictable_tokens, found.free_tokens)
    pool = np.maximum(np.sum(parts, axis=0), 1)
    shares = [100 * part / pool for part in parts]
    axes.stackplot(found.t_s / unit_s, shares, labels=["used", "evictable", "free"], step="post",
                   colors=["#0072B2", "#56B4E9", "#dddddd"])  # fmt: skip
    axes.set_ylim(0, 100)
    axes.set_ylabel("KV tokens (%)")


def draw_throughput(axes: Axes, found: Timeline, unit_s: float) -> None:
    """Prompt tokens computed and tokens decoded a second, in 120 windows."""
    edges_s = np.append(found.t_s, found.t_s[-1:] + found.window_s)[::_RATE_WINDOW]
    for rate, label, colour in (
        (found.prefill_tokens_per_s, "prefill (new tokens)", PALETTE[1]),
        (found.decode_tokens_per_s, "decode", PALETTE[0]),
    ):
        means = rate.reshape(-1, _RATE_WINDOW).mean(axis=1)
        if len(means):
            axes.stairs(means, edges_s / unit_s, baseline=None, color=colour, label=label)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("tokens/s")


def _unit_ns(logs: Mapping[str, RunLog]) -> int:
    return time_unit(max(log_end_ns(log) for log in logs.values()))[0]


def _draw_steps(axes: Axes, series: StepSeries, unit_ns: int, colour: str, label: str) -> None:
    axes.plot(series.t_ns / unit_ns, series.value, color=colour, label=label,
              drawstyle="steps-post", linewidth=1.3)  # fmt: skip


def _frame(axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Limits that leave room for labels; at least 10 points of hit rate, so that noise is small."""
    if not points:
        return
    p99s_ms, hits_pct = (np.array(values) for values in zip(*points.values(), strict=True))
    axes.set_xlim(p99s_ms.min() / 2.5, p99s_ms.max() * 2.5)
    middle, half = (hits_pct.max() + hits_pct.min()) / 2, np.ptp(hits_pct) / 2
    half = max(5.0, 1.7 * half)
    axes.set_ylim(middle - half, middle + half)


def _label_points(axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Name and numbers beside each dot, on its roomier side, spread so that none overlap."""
    low, high = axes.get_ylim()
    left, right = np.log(axes.get_xlim())
    height_points = axes.get_window_extent().height / axes.figure.dpi * 72
    above = np.inf
    for name, (p99_ms, hit_pct) in sorted(points.items(), key=lambda item: -item[1][1]):
        at = (hit_pct - low) / (high - low) * height_points
        height = min(at, above - _LABEL_POINTS)
        above = height
        on_left = (np.log(p99_ms) - left) / (right - left) > 0.5
        axes.annotate(
            f"{plain_text(name)}: {hit_pct:.1f} %, {latency_text(p99_ms)}",
            (p99_ms, hit_pct),
            xytext=(-11 if on_left else 11, height - at),
            textcoords="offset points",
            ha="right" if on_left else "left",
            va="center",
        )
