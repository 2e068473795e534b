"""Pictures are made for every kind of log, show the right numbers, and do not vary."""

import numpy as np
import pytest

from sim.core.errors import InputError
from sim.metrics.rates import hit_rate_over_time
from sim.report.figures.run_logs import plot_comparison, plot_timeline, plot_ttft_cdf
from sim.report.plot_style import save_figure
from tests.support.run_logs import request_columns, run_log, step_columns
from tests.support.toy_server import toy_log

MS = 1_000_000


@pytest.fixture(scope="module")
def logs():
    return {
        "fcfs": toy_log(200, rate_rps=12),
        r"_lpm [T=200 ms] $\frac$": toy_log(200, rate_rps=12, prefers_cached=True),
    }


def test_pictures_of_one_log_have_equal_bytes(logs, tmp_path):
    """No time stamp, no version, no random id."""
    for suffix in ("png", "svg"):
        for attempt in ("a", "b"):
            save_figure(plot_comparison(logs, "Policies"), tmp_path / f"{attempt}.{suffix}")
        first = (tmp_path / f"a.{suffix}").read_bytes()
        assert first == (tmp_path / f"b.{suffix}").read_bytes()
        assert len(first) > 10_000


def test_comparison_picture_is_1200_by_800(logs, tmp_path):
    """The size it was designed for."""
    save_figure(plot_comparison(logs, "Policies"), tmp_path / "a.png")
    header = (tmp_path / "a.png").read_bytes()[16:24]
    assert (int.from_bytes(header[:4]), int.from_bytes(header[4:])) == (1_200, 800)


def test_ttft_curve_ends_at_the_slowest_request_and_marks_p99(logs):
    """The curve's numbers are the log's."""
    rows = logs["fcfs"].requests
    ttft_ms = (rows.first_token_ns - rows.arrival_ns) / MS
    (axes,) = plot_ttft_cdf({"fcfs": logs["fcfs"]}).axes
    curve = next(line for line in axes.lines if line.get_label() == "fcfs")
    assert curve.get_xdata()[-1] == pytest.approx(ttft_ms.max())
    assert curve.get_ydata()[-1] == 100
    marks = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert marks == [pytest.approx(np.percentile(ttft_ms, 99))]


def test_hit_rate_over_time_weighted_by_prompts_equals_hit_rate():
    """Eight requests in two clusters: each cluster's share, and nothing in between."""
    requests = request_columns(
        arrival_ns=[0] * 8, scheduled_ns=[0, 1, 2, 3, 96, 97, 98, 99],
        prompt_tokens=[100] * 8, cached_tokens=[0, 0, 0, 40, 100, 100, 90, 90],
    )  # fmt: skip
    middles_ns, percent = hit_rate_over_time(run_log(requests))
    assert percent.tolist() == [10.0, 95.0]
    assert middles_ns.tolist() == [6.25, 93.75]


@pytest.mark.parametrize(
    "log",
    [
        run_log(request_columns()),
        run_log(request_columns(status=["rejected"], arrival_ns=[7])),
        run_log(
            request_columns(arrival_ns=[0], scheduled_ns=[0], first_token_ns=[5 * MS],
                            finish_ns=[5 * MS], prompt_tokens=[1], output_tokens=[1]),
            step_columns(t_start_ns=[0], t_end_ns=[5 * MS], num_prefill_tokens=[1]),
        ),
    ],
    ids=["empty", "rejected", "one token"],
)  # fmt: skip
def test_pictures_of_degenerate_logs_are_drawn_without_warnings(log, tmp_path):
    """Nothing finished, or a single token: axes without curves, no crash."""
    figures = [plot_ttft_cdf({"x": log}), plot_timeline(log), plot_comparison({"x": log}, "X")]
    for number, figure in enumerate(figures):
        save_figure(figure, tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").stat().st_size > 1_000


def test_save_figure_of_unknown_suffix_is_refused(logs, tmp_path):
    """One line that names the file, and no file."""
    with pytest.raises(
        InputError, match=r"a\.pdf: unknown suffix '\.pdf', expected \.png or \.svg"
    ):
        save_figure(plot_ttft_cdf(logs), tmp_path / "a.pdf")
    assert not list(tmp_path.iterdir())


def test_pictures_of_a_big_log_are_thinned_before_they_are_drawn(tmp_path):
    """8,000 requests and 50,000 runs of steps."""
    num_runs, num_requests = 50_000, 8_000
    rng = np.random.default_rng(0)
    ends_ns = np.cumsum(rng.integers(1, 40, num_runs)) * MS
    arrival_ns = np.sort(rng.integers(0, ends_ns[-1] // 2, num_requests))
    first_ns = arrival_ns + rng.integers(1, 900, num_requests) * MS
    requests = request_columns(
        arrival_ns=arrival_ns, scheduled_ns=arrival_ns, first_token_ns=first_ns,
        finish_ns=first_ns + 9 * MS, prompt_tokens=[9] * num_requests,
    )  # fmt: skip
    sizes = {name: rng.integers(0, 50, num_runs) for name in ("queue", "running", "used_tokens",
             "free_tokens", "evictable_tokens", "num_decode_rows")}  # fmt: skip
    steps = step_columns(t_start_ns=np.append(0, ends_ns[:-1]), t_end_ns=ends_ns, **sizes)
    log = run_log(requests, steps)
    two = {"a": log, "b": log}
    for figure in (plot_timeline(log), plot_ttft_cdf({"a": log}), plot_comparison(two, "A")):
        assert 100 < num_vertices(figure) < 20_000
        save_figure(figure, tmp_path / "a.png")


def num_vertices(figure):
    """How many points of lines and outlines are drawn."""
    axes = figure.get_axes()
    paths = [line.get_path() for each in axes for line in each.lines]
    paths += [path for each in axes for drawn in each.collections for path in drawn.get_paths()]
    return sum(len(path.vertices) for path in paths)
