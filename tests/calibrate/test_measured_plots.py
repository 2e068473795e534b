"""Pictures of a simulation beside a measured run: right values, readable texts."""

import itertools

import numpy as np
import pytest

from calibrate.plots import Both, plot_distributions, plot_over_time, plot_requests
from sim.report.figures.render import matplotlib_figure, save_picture


def spread(low, high, num=200):
    """Latencies over this range; the simulated ones are a little different."""
    rng = np.random.default_rng(1)
    measured = np.sort(rng.uniform(np.log(low), np.log(high), num))
    return Both(np.exp(measured), np.exp(measured + 0.05 * rng.standard_normal(num)))


WIDE = {"TTFT": spread(20, 20_000), "TPOT": spread(20, 38), "latency": spread(2_000, 38_000)}
TINY = {"TTFT": spread(0.5, 2), "TPOT": spread(0.010, 0.013), "latency": spread(3, 900)}
ALIKE = {name: Both(np.full(9, value), np.full(9, value)) for name, value in
         {"TTFT": 12.0, "TPOT": 0.0, "latency": 2e6}.items()}  # fmt: skip
T_S = np.arange(1.0, 70.0)
SIZES = {
    "running": Both(np.minimum(T_S * 9, 128), np.minimum(T_S * 8, 128)),
    "waiting": Both(T_S * 0, T_S * 0),
}


def texts(figure):
    """Every text that is drawn, with its box in pixels."""
    figure.draw_without_rendering()
    found = []
    for axes in figure.axes:
        ticks = [
            label
            for axis in (axes.xaxis, axes.yaxis)
            for tick, label in zip(axis.get_major_ticks(), axis.get_ticklabels(), strict=False)
            if tick.get_visible() and _within(axes, axis, tick)
        ]
        found += [*ticks, *axes.texts, axes.xaxis.label, axes.yaxis.label]
        found += [axes.title, axes._left_title]
    found += [text for legend in figure.legends for text in legend.get_texts()]
    found += [legend.get_title() for legend in figure.legends]
    if figure._suptitle is not None:
        found.append(figure._suptitle)
    shown = [text for text in found if text.get_visible() and text.get_text().strip()]
    return [(text.get_text(), text.get_window_extent()) for text in shown]


def _within(axes, axis, tick):
    low, high = sorted(axes.get_xlim() if axis is axes.xaxis else axes.get_ylim())
    return low <= tick.get_loc() <= high


@pytest.mark.parametrize(
    "picture",
    [
        *(plot(sample) for plot in (plot_requests, plot_distributions)
          for sample in (WIDE, TINY, ALIKE)),
        plot_over_time(T_S, SIZES),
        plot_over_time(T_S * 300, SIZES),
    ],
)  # fmt: skip
def test_pictures_can_be_read(picture):
    """No text overlaps another one or the edge of the picture."""
    figure = matplotlib_figure(picture)
    found = texts(figure)
    width, height = figure.canvas.get_width_height()
    assert len(found) > 10
    for (one, box), (other, beside) in itertools.combinations(found, 2):
        assert not box.overlaps(beside), (one, other)
    for text, box in found:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text


def test_requests_have_a_panel_a_latency_with_measured_across():
    """Every request once, on equal axes that show all of them."""
    panels = matplotlib_figure(plot_requests(WIDE)).axes
    assert [axes.get_title(loc="left") for axes in panels] == [
        "TTFT, 200 requests",
        "TPOT, 200 requests",
        "latency, 200 requests",
    ]
    for axes, both in zip(panels, WIDE.values(), strict=True):
        dots = next(line for line in axes.lines if line.get_label() == "requests")
        assert np.array_equal(dots.get_xdata(), both.measured)
        assert np.array_equal(dots.get_ydata(), both.simulated)
        assert axes.get_xlim() == axes.get_ylim()
        low, high = axes.get_xlim()
        assert low < np.concatenate(both).min() <= np.concatenate(both).max() < high
    assert [axes.get_xscale() for axes in panels] == ["log", "linear", "linear"]


def test_requests_that_a_logarithm_cannot_show_are_counted():
    """A logarithmic axis cannot show a measured 0; a linear one can."""
    wide, narrow = Both(*(np.append(side, 0.0) for side in WIDE["TTFT"])), ALIKE["TPOT"]
    panels = matplotlib_figure(plot_requests({"TTFT": wide, "TPOT": narrow})).axes
    assert panels[0].get_title(loc="left") == "TTFT, 200 requests, 1 at 0 left out"
    assert panels[1].get_title(loc="left") == "TPOT, 9 requests"


def test_distributions_rise_from_the_quickest_to_the_slowest():
    """Measured first, then simulated."""
    for axes, both in zip(
        matplotlib_figure(plot_distributions(WIDE)).axes, WIDE.values(), strict=True
    ):
        for line, values in zip(axes.lines, both, strict=True):
            assert line.get_xdata()[[0, -1]] == pytest.approx([values.min(), values.max()])
            assert line.get_ydata()[[0, -1]].tolist() == [0, 100]


def test_sizes_over_time_are_shown_as_they_were_sampled():
    """One panel each, in seconds."""
    figure = matplotlib_figure(plot_over_time(T_S, SIZES))
    assert figure.axes[-1].get_xlabel() == "time (s)"
    for axes, (name, both) in zip(figure.axes, SIZES.items(), strict=True):
        assert axes.get_title(loc="left") == name
        for line, values in zip(axes.lines, both, strict=True):
            assert line.get_xdata() == pytest.approx(T_S)
            assert np.array_equal(line.get_ydata(), values)
    assert matplotlib_figure(plot_over_time(T_S * 300, SIZES)).axes[-1].get_xlabel() == "time (h)"


def test_pictures_have_equal_bytes(tmp_path):
    """No time stamp in them."""
    for name in ("a.png", "b.png"):
        save_picture(plot_requests(WIDE), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
