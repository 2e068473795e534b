"""Pictures of run logs: TTFT and its parts, one run over time, and several runs compared."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sim.core.arrays import Bools, Float64, Int64
from sim.core.units import NS_PER_S
from sim.metrics.latencies import finished_mask, request_latencies
from sim.metrics.pools import Phases, sizes
from sim.metrics.rates import admitted_mask, hit_rate_over_time, hit_rate_pct, log_end_ns
from sim.metrics.registry import PHASES, TTFT, metric
from sim.metrics.series import MAX_POINTS
from sim.metrics.timeline import NUM_WINDOWS, Timeline
from sim.report.figures.axes import axis_from_zero, padded
from sim.report.figures.cdf import P99, P99_LINE, distribution, percent_axis
from sim.report.figures.key_text import latency_text, time_unit
from sim.report.figures.marks import (
    BLACK,
    DOTTED,
    GREY,
    PALETTE,
    Axis,
    Band,
    Line,
    Mark,
    Note,
    Panel,
    Picture,
    Style,
    placed,
)
from sim.report.figures.plot_parts import Drawn
from sim.runlog import RequestColumns, RunLog

# The number of a timeline's windows that make one window of the throughput.
_RATE_WINDOW = NUM_WINDOWS // 120
# Fewer points than pixels, so that several queues over each other stay legible.
_QUEUE_POINTS = 300
_HIT_RATE = f"{metric('total_cached_tokens').label} (%)"
_SIZES = (Style("waiting", PALETTE[1], marker=""), Style("running", PALETTE[0], marker=""))
_RATES = (Style("prefill (new tokens)", PALETTE[1], marker=""),
          Style("decode", PALETTE[0], marker=""))  # fmt: skip
_KV_PARTS = tuple(Style(label, colour, is_area=True) for label, colour in
                  (("used", "#0072B2"), ("evictable", "#56B4E9"), ("free", "#dddddd")))  # fmt: skip
_FRAME_PX = (515, 290)
_MAX_WINDOWS, _REQUESTS_PER_WINDOW = 60, 5
_PARTS_TITLE = "Where the time to first token goes"
_PARTS_CAPTION = (
    "The parts of TTFT of finished requests, stacked: on the left by how long their TTFT is, on the"
    " right by when they arrived. Each point is the mean of some requests."
)
_PARTS = [Style(phase.label, PALETTE[number], is_area=True)
           for number, phase in enumerate(PHASES.values())]  # fmt: skip


def ttft_picture(logs: Mapping[str, RunLog]) -> Picture:
    """The distribution of TTFT over finished requests: one curve for each run, with its p99."""
    panel = ttft_panel(logs, title="Time to first token")
    return Picture(panels=[panel], columns=1, size_px=(1_000, 640), legend=styles_of(logs))


def comparison_picture(logs: Mapping[str, RunLog], title: str) -> Picture:
    """Two to four runs in one picture: TTFT, the trade-off, hit rate and queue over time."""
    end_ns = max(map(log_end_ns, logs.values()))
    panels = [
        ttft_panel(logs, title="Time to first token"),
        _trade_off_panel(logs),
        _hit_rate_panel(logs, end_ns, "Cache hit rate, by admission"),
        _queue_panel(logs, end_ns),
    ]
    return Picture(panels=panels, columns=2, size_px=(1_200, 800), title=title,
                   legend=styles_of(logs))  # fmt: skip


def timeline_picture(data: Timeline, log: RunLog) -> Picture:
    """One run over time: requests waiting and running, KV use, hit rate, throughput."""
    end_ns = log_end_ns(log)
    hits = _hit_rate_panel({"hit rate": log}, end_ns, "Prompt tokens found cached, by admission")
    panels = [sizes_panel(data, end_ns), _kv_panel(data, end_ns), hits, _rate_panel(data, end_ns)]
    return Picture(panels=panels, columns=1, size_px=(1_200, 1_100), shares="x")


def pool_picture(data: Timeline, log: RunLog) -> Picture:
    """What the servers of a pool do over time; `log` is the whole run's, and needs no steps."""
    end_ns = log_end_ns(log)
    panels = [sizes_panel(data, end_ns), _kv_panel(data, end_ns), _rate_panel(data, end_ns)]
    return Picture(panels=panels, columns=1, size_px=(1_200, 830), shares="x")


def styles_of(logs: Mapping[str, RunLog]) -> list[Style]:
    """How the line of each log looks."""
    return [Style(name, PALETTE[row % len(PALETTE)], marker="") for row, name in enumerate(logs)]


def time_axis(end_ns: int) -> Axis:
    unit_ns, unit = time_unit(end_ns)
    return Axis(label=f"time ({unit})", limits=(0.0, end_ns / unit_ns or 1.0))


def stacked(
    x: Float64, heights: Sequence[Float64], styles: Sequence[Style], *, steps: bool = False
) -> Iterator[Band]:
    """Areas over each other, the first one at the bottom."""
    tops = np.cumsum(heights, axis=0)
    for top, height, style in zip(tops, heights, styles, strict=True):
        yield Band(x=x, low=top - height, high=top, colour=style.colour, line=style.label,
                   has_values=True, steps=steps)  # fmt: skip


def ttft_panel(logs: Mapping[str, RunLog], title: str = "") -> Panel:
    """Share of finished requests against TTFT, the 99th percentile marked on each curve."""
    marks = list(P99_LINE)
    samples = {
        style: _ttft_ms(log) for style, log in zip(styles_of(logs), logs.values(), strict=True)
    }
    for style, ttft_ms in samples.items():
        if len(ttft_ms):
            percent = np.linspace(0, 100, min(len(ttft_ms), MAX_POINTS))
            p99 = float(np.percentile(ttft_ms, P99))
            curve, dot = distribution(np.percentile(ttft_ms, percent), percent, p99, style)
            drop = Line(x=[p99, p99], y=[0, P99], colour=style.colour, line=style.label, width=0.9,
                        dash=DOTTED)  # fmt: skip
            marks += [curve, drop, dot]
    shown = [value for each in samples.values() for value in each.tolist() if value > 0]
    limits = padded(min(shown), max(shown), 0.05, is_log=True) if shown else (1.0, 10.0)
    return Panel(title=title, x=_log_latency_axis(TTFT.words, limits),
                 y=percent_axis("requests (%)"), marks=marks)  # fmt: skip


def sizes_panel(data: Timeline, end_ns: int) -> Panel:
    """Waiting and running requests over all replicas."""
    x = _in_units(data.t_s, end_ns)
    marks = [_step_line(x, size, style)
             for style, size in zip(_SIZES, (data.waiting, data.running), strict=True)]  # fmt: skip
    return Panel(title="Requests", x=time_axis(end_ns), marks=marks, legend=_SIZES,
                 y=axis_from_zero("requests", data.waiting, data.running))  # fmt: skip


def _kv_panel(data: Timeline, end_ns: int) -> Panel:
    """The pool's split into used, evictable and free tokens, stacked to 100 %."""
    parts = (data.used_tokens, data.evictable_tokens, data.free_tokens)
    pool = np.maximum(np.sum(parts, axis=0), 1)
    shares = [100 * part / pool for part in parts]
    bands = list(stacked(_in_units(data.t_s, end_ns), shares, _KV_PARTS, steps=True))
    return Panel(title="KV pool", x=time_axis(end_ns), legend=_KV_PARTS, marks=bands,
                 y=Axis(label="KV tokens (%)", limits=(0, 100)))  # fmt: skip


def _rate_panel(data: Timeline, end_ns: int) -> Panel:
    """Prompt tokens computed and tokens decoded, both per second, in 120 windows."""
    edges_s = np.append(data.t_s, data.t_s[-1:] + data.window_s)[::_RATE_WINDOW]
    rates = [rate.reshape(-1, _RATE_WINDOW).mean(axis=1)
             for rate in (data.prefill_tokens_per_s, data.decode_tokens_per_s)]  # fmt: skip
    marks = [
        _step_line(_in_units(edges_s, end_ns), np.append(rate, rate[-1:]), style, 1.6)
        for rate, style in zip(rates, _RATES, strict=True)
    ]
    return Panel(title="Throughput", x=time_axis(end_ns), marks=marks, legend=_RATES,
                 y=axis_from_zero("tokens/s", *rates))  # fmt: skip


def _hit_rate_panel(logs: Mapping[str, RunLog], end_ns: int, title: str) -> Panel:
    """Prompt tokens found cached, by time of admission."""
    marks = []
    for style, log in zip(styles_of(logs), logs.values(), strict=True):
        middles_ns, percent = hit_rate_over_time(log)
        marks.append(Line(x=_in_units(middles_ns / NS_PER_S, end_ns), y=percent,
                          colour=style.colour, line=style.label, has_values=True))  # fmt: skip
    y = Axis(label=_HIT_RATE, limits=(0, 100))
    return Panel(title=title, x=time_axis(end_ns), y=y, marks=marks)


def _queue_panel(logs: Mapping[str, RunLog], end_ns: int) -> Panel:
    """Waiting requests over all replicas."""
    marks, waiting = [], []
    for style, log in zip(styles_of(logs), logs.values(), strict=True):
        queue = sizes(log)[0].thinned(log_end_ns(log), _QUEUE_POINTS)
        marks.append(_step_line(_in_units(queue.t_ns / NS_PER_S, end_ns), queue.value, style))
        waiting.append(queue.value)
    return Panel(title="Queue", x=time_axis(end_ns), y=axis_from_zero("waiting requests", *waiting),
                 marks=marks)  # fmt: skip


def _trade_off_panel(logs: Mapping[str, RunLog]) -> Panel:
    """One dot for each run: hit rate against p99 TTFT; further up and left is better."""
    dots: list[Mark] = []
    labels: list[Note] = []
    for style, log in zip(styles_of(logs), logs.values(), strict=True):
        if len(ttft_ms := _ttft_ms(log)):
            p99_ms = float(np.percentile(ttft_ms, P99))
            hit_pct = hit_rate_pct(log.requests, admitted_mask(log.requests)) or 0.0
            text = f"{style.label}: {hit_pct:.1f} %, {latency_text(p99_ms)}"
            dots.append(Line(x=[p99_ms], y=[hit_pct], colour=style.colour, line=style.label,
                             has_values=True, width=0, marker="o", size=11))  # fmt: skip
            labels.append(Note(text=text, x=p99_ms, y=hit_pct, colour=BLACK))
    # Space for labels; the hit rate spans at least 10 %, so noise looks small.
    p99s_ms, hits_pct = (
        [label.x for label in labels] or [3.0],
        [label.y for label in labels] or [0.0],
    )
    middle = (max(hits_pct) + min(hits_pct)) / 2
    half = max(5.0, 0.85 * (max(hits_pct) - min(hits_pct)))
    x = _log_latency_axis(f"p99 {TTFT.words}", (min(p99s_ms) / 2.5, max(p99s_ms) * 2.5))
    y = Axis(label=_HIT_RATE, limits=(middle - half, middle + half))
    better = Note(text="↖ better", x=0.02, y=0.98, dy=-1, dx=1, colour=GREY, x_is_share=True,
                  y_is_share=True)  # fmt: skip
    return Panel(title="Cache hits against the slowest first tokens", x=x, y=y,
                 marks=[*dots, *placed(labels, (x, y), _FRAME_PX), better])  # fmt: skip


def _log_latency_axis(words: str, limits_ms: tuple[float, float]) -> Axis:
    label = f"{words} (log scale)"
    return Axis(label=label, limits=limits_ms, is_log=True, is_latency=True)


def _ttft_ms(log: RunLog) -> Float64:
    """TTFTs of the finished requests, warm-up aside."""
    requests = log.measured().requests
    return request_latencies(requests).ttft_ms[finished_mask(requests)]


def _step_line(x: Float64, y: Float64, style: Style, width: float = 1.3) -> Line:
    return Line(x=x, y=y, colour=style.colour, line=style.label, has_values=True, width=width,
                steps=True)  # fmt: skip


def _in_units(t_s: Float64, end_ns: int) -> Float64:
    """Times on the axis of a run that ends then."""
    return t_s * NS_PER_S / time_unit(end_ns)[0]


def has_parts(requests: RequestColumns, parts: Phases) -> bool:
    """Whether there is a request to draw."""
    return bool(_with_parts(requests, parts).any())


def draw_ttft_parts(requests: RequestColumns, parts: Phases) -> Drawn:
    """Stacked parts of TTFT; `has_parts` must be true."""
    shown = _with_parts(requests, parts)
    values_ms = np.stack([part[shown] for part in parts])
    ttft_ms, arrival_ns = values_ms.sum(axis=0), requests.arrival_ns[shown]
    percent = (np.arange(len(ttft_ms)) + 0.5) * 100 / len(ttft_ms)
    unit_ns, unit = time_unit(int(arrival_ns.max()))
    by_ttft, by_time = (np.argsort(each, kind="stable") for each in (ttft_ms, arrival_ns))
    left = _grouped_means(percent, values_ms[:, by_ttft])
    right = _grouped_means(arrival_ns[by_time] / unit_ns, values_ms[:, by_time])
    y = axis_from_zero(f"{TTFT.words} (ms)", left[1:].sum(axis=0), right[1:].sum(axis=0))
    panels = [_parts_panel("By TTFT", "requests in order of TTFT (%)", left, y),
              _parts_panel("By arrival", f"time of arrival ({unit})", right, y)]  # fmt: skip
    picture = Picture(panels=panels, columns=2, size_px=(1_200, 590), title=_PARTS_TITLE,
                      legend=_PARTS, shares="y")  # fmt: skip
    return Drawn(picture, "ttft-parts", _PARTS_TITLE, _PARTS_CAPTION)


def _with_parts(requests: RequestColumns, parts: Phases) -> Bools:
    return finished_mask(requests) & ~np.isnan(parts.prefill_ms)


def _parts_panel(title: str, x_label: str, means: Float64, y: Axis) -> Panel:
    x, *heights = means
    limits = float(x[0]), float(x[-1]) if x[-1] > x[0] else float(x[0]) + 1.0
    bands = list(stacked(x, heights, _PARTS))
    return Panel(title=title, x=Axis(label=x_label, limits=limits), y=y, marks=bands)


def _grouped_means(x: Float64, values: Float64) -> Float64:
    """Means over groups of requests in order of `x`: of `x`, and of each row of `values`."""
    groups = _groups(len(x))
    counts = np.bincount(groups)
    return np.stack([np.bincount(groups, weights=row) / counts for row in (x, *values)])


def _groups(size: int) -> Int64:
    """The group of each request, of `size` in order. Groups have about the same size."""
    number = int(np.clip(size // _REQUESTS_PER_WINDOW, 1, _MAX_WINDOWS))
    return np.asarray(np.arange(size, dtype=np.int64) * number // size, dtype=np.int64)
