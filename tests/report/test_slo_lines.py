"""The SLO in pictures: a line where its limit is on the axis, words where it is not."""

import pytest

from sim.report.figures.marks import Guide
from sim.report.figures.plot_parts import SLO_COLOUR
from sim.report.plots import draw_report, report_section

RATE, CHUNK = "workload.arrivals.rate_rps", "scheduler.chunked_prefill_size"


def drawn(data, **plot):
    (result,) = draw_report(data, report_section({"plots": [plot]}, data))
    return result


def lines_at(panel, which):
    """Where the dashed lines of the SLO are on an axis."""
    rules = [mark for mark in panel.marks if isinstance(mark, Guide) and mark.axis == which]
    return [rule.at for rule in rules if rule.colour == SLO_COLOUR]


@pytest.fixture
def data(made_up):
    """p99 TTFT from 100 to 400 ms; the limit is 500 ms."""
    return made_up({CHUNK: [1, 2, 4]}, lambda s, _: {"p99_ttft_ms": 100.0 * s[CHUNK]})


@pytest.mark.parametrize("kind", ["curve", "bars", "scatter"])
def test_slo_is_a_line_on_plots_of_its_percentile_alone(data, kind):
    """The axis reaches up to it; a mean has no limit."""
    result = drawn(data, kind=kind, x=CHUNK, y=["p99_ttft_ms", "mean_ttft_ms"])
    of_p99, of_mean = result.picture.panels
    assert (lines_at(of_p99, "y"), lines_at(of_mean, "y")) == ([500], [])
    assert of_p99.y.limits[1] > 500
    assert "The dashed red line is the SLO: p99 TTFT of 500 ms at most." in result.caption


def test_slo_is_a_line_on_distributions_and_trade_offs(data):
    """Across, if the latency is on the horizontal axis."""
    cdf = drawn(data, kind="cdf", lines=CHUNK)
    assert lines_at(cdf.picture.panels[0], "x") == [500]
    both = drawn(data, kind="trade-off", x="p99_ttft_ms", y="cache_hit_rate_pct", along=CHUNK)
    assert lines_at(both.picture.panels[0], "x") == [500]


def test_slo_far_from_what_was_measured_is_said_in_words(made_up):
    """A line would take the picture's room."""
    data = made_up({CHUNK: [1, 2]}, lambda s, _: {"p99_ttft_ms": float(s[CHUNK])})
    result = drawn(data, kind="curve", x=CHUNK, y="p99_ttft_ms")
    assert lines_at(result.picture.panels[0], "y") == []
    assert "The SLO, p99 TTFT of 500 ms, is above the axis." in result.caption


def test_slo_of_another_percentile_has_its_own_metric(made_up):
    """The scenario says which percentile is held against the limit."""
    data = made_up({CHUNK: [1, 2]}, lambda s, _: {"p90_ttft_ms": 400.0, "slo_percentile": 90})
    assert data.slo_limits == {"p90_ttft_ms": 500}
    assert data.setting_metrics[:3] == ("request_goodput", "slo_attainment", "p90_ttft_ms")


def test_replicas_make_load_and_saturate_from_below(made_up):
    """More servers are less load for each."""
    data = made_up({"replicas": [1, 2, 4]}, lambda s, _: {"saturated": s["replicas"] < 3})
    (load,) = (one for one in draw_report(data, report_section({}, data)) if "load" in one.slug)
    assert "Saturated up to 2 servers." in load.caption
