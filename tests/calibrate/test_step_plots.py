"""The picture of predicted against measured step times."""

import numpy as np
import pytest

from calibrate.plots import plot_step_times
from sim.report.figures.render import matplotlib_figure, save_picture

MS = 1e6


@pytest.fixture
def times():
    rng = np.random.default_rng(1)
    measured_ns = rng.uniform(1, 30, 500) * MS
    return {
        "extend": (measured_ns, measured_ns * 1.05),
        "decode": (measured_ns[:7], measured_ns[:7] * 0.9),
    }


def test_step_times_have_a_panel_a_mode_with_measured_across(times):
    """In milliseconds, every step once."""
    panels = matplotlib_figure(plot_step_times(times)).axes
    assert [axes.get_title(loc="left") for axes in panels] == [
        "extend, 500 steps",
        "decode, 7 steps",
    ]
    for axes, (measured_ns, predicted_ns) in zip(panels, times.values(), strict=True):
        dots = next(line for line in axes.lines if line.get_label() == "steps")
        assert np.allclose(dots.get_xdata(), measured_ns / MS)
        assert np.allclose(dots.get_ydata(), predicted_ns / MS)


def test_step_times_show_everything_on_equal_axes(times):
    """Equal times lie on the diagonal from corner to corner."""
    for axes in matplotlib_figure(plot_step_times(times)).axes:
        assert axes.get_xlim() == axes.get_ylim()
        low, high = axes.get_xlim()
        dots = next(line for line in axes.lines if line.get_label() == "steps")
        for values in (dots.get_xdata(), dots.get_ydata()):
            assert low < min(values) <= max(values) < high


def test_step_times_of_many_steps_are_thinned(times):
    """At most a fixed number of dots is drawn."""
    many_ns = np.linspace(1, 2, 100_000) * MS
    (axes,) = matplotlib_figure(plot_step_times({"decode": (many_ns, many_ns)})).axes
    dots = next(line for line in axes.lines if line.get_label() == "steps")
    assert 2_000 < len(dots.get_xdata()) <= 4_000
    assert axes.get_title(loc="left") == "decode, 100,000 steps"


def test_step_times_picture_has_equal_bytes(times, tmp_path):
    """No time stamp in it."""
    for name in ("a.png", "b.png"):
        save_picture(plot_step_times(times), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
