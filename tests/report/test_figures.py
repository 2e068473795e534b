"""Every kind of plot: its points, units, legends and intervals; equal input, equal picture."""

import math

import numpy as np
import pytest

from sim.report.figures.axes import KeyAxis
from sim.report.figures.marks import Line
from sim.report.figures.render import figure_bytes, matplotlib_figure
from sim.report.plots import draw_plot
from sim.scenario.report_section import ReportSection

POLICY, T_MS = "scheduler.schedule_policy", "scheduler.fairness.t_ms"
CHUNK, BUDGET = "scheduler.chunked_prefill_size", "scheduler.max_prefill_tokens"
RATE = "workload.arrivals.rate_rps"
POLICIES = ["fcfs", "lpm"]
SEEDS = (1, 2, 3)


def drawn(data, **plot):
    return draw_plot(data, ReportSection(plots=[plot]).plots[0])


def figure_of(drawn):
    return matplotlib_figure(drawn.picture)


def lines_with_values(drawn):
    return [mark for mark in drawn.picture.panels[0].marks
            if isinstance(mark, Line) and mark.has_values]  # fmt: skip


def ticks(axes):
    return {label.get_text(): place for place, label in zip(axes.get_xticks(),
            axes.get_xticklabels(), strict=True)}  # fmt: skip


def legend(figure):
    return [text.get_text() for one in figure.legends for text in one.get_texts()]


def test_curve_has_a_panel_a_metric_a_line_a_policy_and_bands(made_up):
    """Means over seeds at their places; axes with units; infinity beyond the last number."""
    data = made_up(
        {CHUNK: [128, 512, 2048, -1], POLICY: POLICIES},
        lambda setting, seed: {"p99_itl_ms": 10.0 + seed, "p99_ttft_ms": 100.0 * seed},
        SEEDS,
    )
    result = drawn(data, kind="curve", x=CHUNK, y=["p99_ttft_ms", "p99_itl_ms"], lines=POLICY)
    ttft, itl = figure_of(result).axes
    assert ttft.get_xlabel() == "chunked_prefill_size (tokens)"
    assert [axes.get_ylabel() for axes in (ttft, itl)] == ["p99 TTFT (ms)", "p99 ITL (ms)"]
    assert ttft.get_xscale() == "log"
    assert list(ticks(ttft)) == ["∞", "128", "512", "2048"]
    assert ticks(ttft)["∞"] > 2048
    assert lines_with_values(result)[0].y.tolist() == [200.0] * 4
    assert len(ttft.collections) == 2
    assert legend(figure_of(result)) == POLICIES
    assert result.title == "p99 TTFT and p99 ITL against chunked_prefill_size"
    assert "95 % confidence" in result.caption


def test_curve_of_hot_and_cold_shares_a_panel(made_up):
    """They differ only in whose requests they are of; the legend tells them apart."""
    data = made_up({CHUNK: [1, 2, 3], POLICY: POLICIES})
    one = drawn(data, kind="curve", x=CHUNK, y=["hot.mean_ttft_ms", "cold.mean_ttft_ms"],
                lines=POLICY, title="Who waits")  # fmt: skip
    assert len(figure_of(one).axes) == 1
    # Read row by row.
    assert sorted(legend(figure_of(one))) == ["fcfs: cold", "fcfs: hot", "lpm: cold", "lpm: hot"]
    assert one.title == figure_of(one).legends[0].get_title().get_text() == "Who waits"


def test_keys_that_a_plot_does_not_name_make_panels_with_equal_axes(made_up):
    """Each says whose it is; `where` leaves some out."""
    data = made_up({CHUNK: [1, 2], T_MS: [5, 50, None]}, lambda s, _: {"p99_ttft_ms": s[CHUNK]})
    result = drawn(data, kind="curve", x=CHUNK, y="p99_ttft_ms", where={T_MS: [5, None]})
    titles = [axes.get_title(loc="left") for axes in figure_of(result).axes]
    assert titles == ["FAIRNESS_T 5 ms", "FAIRNESS_T ∞"]
    assert len({axes.get_ylim() for axes in figure_of(result).axes}) == 1
    off = "The SLO, p99 TTFT of 500 ms, is above the axis."
    assert result.caption == f"{off} Only settings with FAIRNESS_T 5 or ∞."


def bent(setting, seed):
    """Hits increase up to T = 400, TTFT from there on."""
    order = [0, 100, 200, 400, 800, 1600, None].index(setting[T_MS])
    hits, ttft_ms = min(order, 3) * 10 + 0.5 * order, 100 + 2 * order + 300 * max(0, order - 3)
    return {"cache_hit_rate_pct": hits + 0.01 * seed, "p99_ttft_ms": ttft_ms + 0.1 * seed}


def test_trade_off_labels_points_and_marks_the_knee(made_up):
    """Points in the order of T, infinity last, the knee in the picture and in the caption."""
    data = made_up({T_MS: [None, 0, 1600, 100, 800, 200, 400]}, bent, SEEDS)
    result = drawn(
        data,
        kind="trade-off",
        x="p99_ttft_ms",
        y="cache_hit_rate_pct",
        along=T_MS,
        x_scale="linear",
    )
    [axes] = figure_of(result).axes
    labels = [text.get_text() for text in axes.texts]
    assert labels == ["SLO 500 ms", "0", "100", "200", "knee: 400", "800", "1600", "∞"]
    assert "The knee is at 400 ms" in result.caption
    assert axes.get_xlabel() == "p99 TTFT (ms)"
    assert axes.get_ylabel() == "cache hit rate (% of prompt tokens), log scale"


def test_trade_off_without_a_bend_says_that_there_is_no_knee(made_up):
    """No mark; and no word of it where it is not asked for."""

    def straight(setting, _):
        return {"cache_hit_rate_pct": setting[T_MS], "p99_ttft_ms": 100 + setting[T_MS]}

    data = made_up({T_MS: [0, 10, 20, 30]}, straight)
    plot = {"kind": "trade-off", "x": "p99_ttft_ms", "y": "cache_hit_rate_pct", "along": T_MS}
    result = drawn(data, **plot)
    assert "has no knee" in result.caption
    assert not any("knee" in text.get_text() for text in figure_of(result).axes[0].texts)
    assert "knee" not in drawn(data, **plot, knee=False).caption


def test_trade_off_labels_do_not_cover_each_other(made_up):
    """Boxes of the drawn texts, in a line whose points crowd at one end."""

    def crowded(setting, _):
        return {"cache_hit_rate_pct": 50 + 40 * math.tanh(setting[T_MS] / 20),
                "p99_ttft_ms": 100 + 2 * setting[T_MS]}  # fmt: skip

    data = made_up({T_MS: [1, 3, 6, 12, 25, 50, 100]}, crowded)
    result = drawn(data, kind="trade-off", x="p99_ttft_ms", y="cache_hit_rate_pct",
                   along=T_MS)  # fmt: skip
    figure = figure_of(result)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 8
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_heat_map_has_a_cell_for_each_pair(made_up):
    """Numbers rise to the right and upwards, whatever the sweep's order.

    A cell without a value is empty; a column without any is left out, and the caption says so.
    """
    known = {(512, 4096), (128, 1024), (512, 1024), (128, 4096), (2048, 1024)}
    data = made_up(
        {CHUNK: [512, 2048, 128, -1], BUDGET: [4096, 1024]},
        lambda s, _: {"p99_ttft_ms": s[CHUNK] + s[BUDGET]
                      if (s[CHUNK], s[BUDGET]) in known else None},
    )  # fmt: skip
    axes, bar = figure_of(drawn(data, kind="heat", x=CHUNK, y=BUDGET, value="p99_ttft_ms")).axes
    cells = np.ma.filled(axes.images[0].get_array(), np.nan)
    assert cells[:, :2].tolist() == [[128 + 1024, 512 + 1024], [128 + 4096, 512 + 4096]]
    assert cells.shape == (2, 3)
    assert np.isnan(cells[1, 2])
    caption = drawn(data, kind="heat", x=CHUNK, y=BUDGET, value="p99_ttft_ms").caption
    assert "Nothing can be shown for chunked_prefill_size ∞" in caption
    assert [label.get_text() for label in axes.get_xticklabels()] == ["128", "512", "2048"]
    assert len(axes.texts) == 5
    assert bar.get_ylabel() == "p99 TTFT (ms)"


def test_bars_begin_at_zero_and_have_error_bars(made_up):
    """A bar a policy, as high as its mean; error bars from three seeds on."""
    data = made_up(
        {POLICY: POLICIES}, lambda s, seed: {"p99_ttft_ms": 300 + POLICIES.index(s[POLICY]) + seed},
        SEEDS,
    )  # fmt: skip
    result = drawn(data, kind="bars", x=POLICY, y="p99_ttft_ms")
    [axes] = figure_of(result).axes
    assert [bar.get_height() for bar in axes.patches] == [302, 303]
    assert axes.get_ylim()[0] == 0
    assert list(ticks(axes)) == POLICIES
    *_, error_bars = result.picture.panels[0].marks
    assert error_bars.x[[0, 3]].tolist() == [0, 1]
    assert error_bars.y[0] < 302 < error_bars.y[1]


def test_cdf_shows_quantiles_and_marks_p99(made_up):
    """Averaged over seeds, of each part of the requests that is asked for."""
    data = made_up({POLICY: POLICIES}, lambda _, seed: {"mean_ttft_ms": 100.0 * seed}, (1, 3))
    result = drawn(data, kind="cdf", lines=POLICY, of=["hot", "cold"])
    [axes] = figure_of(result).axes
    curves = [line for line in axes.lines if len(line.get_xdata()) > 2]
    assert len(curves) == 4
    assert curves[0].get_xdata()[[0, -1]].tolist() == pytest.approx([20.0, 2000.0])
    assert curves[0].get_ydata()[-1] == 100
    assert axes.get_xscale() == "log"
    assert result.title == "Distribution of TTFT of hot and cold requests by schedule_policy"


def test_load_marks_the_first_saturated_load(made_up):
    """At what was sent, not at the key; hollow from there on, and said so."""

    def loaded(setting, seed):
        rate = setting[RATE]
        return {"request_rate": rate * 0.9, "request_goodput": min(rate * 0.9, 3.0),
                "saturated": rate > 4 or (rate == 4 and seed == 1)}  # fmt: skip

    data = made_up({RATE: [1, 2, 4, 6, 8]}, loaded, SEEDS)
    result = drawn(data, kind="load", x=RATE)
    [axes] = figure_of(result).axes
    assert axes.get_xlabel() == "offered load (requests/s)"
    assert axes.get_ylabel() == "goodput (requests/s)"
    assert "The first saturated load is 5.4 requests/s." in result.caption
    [hollow] = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert hollow.get_xdata() == pytest.approx([5.4, 7.2])
    parts = drawn(data, kind="load", x=RATE, y=["hot.mean_ttft_ms", "cold.mean_ttft_ms"])
    assert parts.caption.count("saturated load") == 1
    by_key = drawn(data, kind="load", x=RATE, at="key")
    assert "The first saturated load is 6 requests/s." in by_key.caption


def test_scatter_has_a_dot_for_each_setting(made_up):
    """Whatever else varies; the caption says what that is."""
    settings = [{CHUNK: 100 + 7 * i, BUDGET: 5000 - 11 * i} for i in range(20)]
    result = drawn(made_up({}, settings=settings), kind="scatter", x=CHUNK, y="p99_ttft_ms")
    [dots] = lines_with_values(result)
    assert dots.x == [100 + 7 * i for i in range(20)]
    assert "max_prefill_tokens" in result.caption


def test_plot_of_nothing_but_failures_is_drawn_empty(made_up):
    """No crash, no warning."""
    data = made_up({POLICY: POLICIES, CHUNK: [1, 2]}, failed={0, 1, 2, 3})
    for plot in (
        {"kind": "curve", "x": CHUNK, "y": "p99_ttft_ms"},
        {"kind": "bars", "x": POLICY, "y": "p99_ttft_ms"},
        {"kind": "heat", "x": CHUNK, "y": POLICY, "value": "p99_ttft_ms"},
        {"kind": "trade-off", "x": "p99_ttft_ms", "y": "duration", "along": CHUNK},
        {"kind": "cdf"},
        {"kind": "load", "x": CHUNK},
        {"kind": "scatter", "x": CHUNK, "y": "p99_ttft_ms"},
    ):
        figure_of(drawn(data, **plot)).draw_without_rendering()


def test_figures_of_equal_data_have_equal_bytes(made_up):
    """No dates, no ids made up by chance; names of users' own are no formulas."""
    data = made_up({CHUNK: [1, 2, 4], POLICY: ["$a_b$", "_x"]}, seeds=SEEDS)
    plot = {"kind": "trade-off", "x": "p99_ttft_ms", "y": "duration", "along": CHUNK,
            "lines": POLICY}  # fmt: skip
    for kind in ("svg", "png"):
        first, second = (figure_bytes(figure_of(drawn(data, **plot)), kind) for _ in range(2))
        assert first == second


@pytest.mark.parametrize(
    ("values", "scale", "is_log"),
    [
        ([1, 2, 4, 8], None, True),
        ([10, 20, 30, 40], None, False),
        ([1, 100], None, True),
        ([0, 100, 1000, 10_000], None, True),
        ([1, 2, 4, 8], "linear", False),
        ([-5, 5, 500], "log", False),
    ],
)
def test_key_axis_is_logarithmic_where_values_lie_factors_apart(values, scale, is_log):
    """Or span much; zero then stands at its left end, and negative numbers forbid it."""
    axis = KeyAxis.of_numbers(T_MS, [*values, None], scale)
    assert axis.is_log == is_log
    places = [axis.place(value) for value in [*values, None]]
    assert places == sorted(places)
    assert all(place > 0 for place in places) or not is_log


def test_heat_against_compares_the_best_of_each_cell(made_up):
    """The best of the other policies in percent of the best of fcfs, whatever the rate."""

    def goodput(setting, seed):
        best = {"fcfs": 10.0, "lpm": 12.5, "hrrn": 5.0}[setting[POLICY]]
        return {"request_goodput": best * setting[CHUNK] - setting[RATE]}

    data = made_up({CHUNK: [1, 2], BUDGET: [5], RATE: [0, 3], POLICY: [*POLICIES, "hrrn"]}, goodput)
    result = drawn(
        data, kind="heat", x=CHUNK, y=BUDGET, value="request_goodput", against={POLICY: "fcfs"}
    )
    axes, bar = figure_of(result).axes
    assert [text.get_text() for text in axes.texts] == ["+25 %", "+25 %"]
    assert bar.get_ylabel() == "advantage in goodput (%)"
    assert result.title == "Advantage in goodput over schedule_policy fcfs"


def test_heat_against_of_a_latency_has_less_as_better(made_up):
    """Half of the latency is an advantage of 100 %; a cell without others has none."""
    data = made_up(
        {CHUNK: [1, 2], BUDGET: [5], POLICY: POLICIES},
        lambda setting, seed: {"p99_ttft_ms": 100.0 if setting[POLICY] == "fcfs" else 50.0},
    )
    plot = {"kind": "heat", "x": CHUNK, "y": BUDGET, "value": "p99_ttft_ms"}
    result = drawn(data, **plot, against={POLICY: "fcfs"})
    assert [text.get_text() for text in figure_of(result).axes[0].texts] == ["+100 %"] * 2
    alone = drawn(data, **plot, against={POLICY: "fcfs"}, where={POLICY: "fcfs"})
    assert list(figure_of(alone).axes[0].texts) == []
