"""Plots that a sweep can have, and the errors for others."""

import pytest

from sim.report.figures.plot_check import check_report, panel_metrics, tenants_of
from sim.scenario.report_section import ReportSection
from sim.sweep.results import Design

POLICY, CHUNK, FAIR = "scheduler.schedule_policy", "scheduler.chunk", "scheduler.fairness"
DESIGN = Design.of(
    (POLICY, CHUNK), [{POLICY: p, CHUNK: c} for p in ("fcfs", "lpm") for c in (1, 2, 4)]
)


def problem_of(plot, design=DESIGN, tenants=("chat",)):
    return check_report(ReportSection(plots=[plot]), design, tenants)


@pytest.mark.parametrize(
    "plot",
    [
        {"kind": "curve", "x": CHUNK, "y": "p99_ttft_ms", "lines": POLICY},
        {"kind": "curve", "x": CHUNK, "y": ["hot.mean_ttft_ms", "tenants.chat.p99_ttft_ms"]},
        {"kind": "bars", "x": POLICY, "y": "saturated", "where": {CHUNK: 2.0}},
        {"kind": "trade-off", "x": "p99_ttft_ms", "y": "cache_hit_rate_pct", "along": CHUNK},
        {"kind": "heat", "x": CHUNK, "y": POLICY, "value": "p99_itl_ms"},
        {"kind": "cdf", "lines": [POLICY], "of": ["all", "tenants.chat"]},
        {"kind": "load", "x": CHUNK},
        {"kind": "scatter", "x": CHUNK, "y": "duration"},
    ],
    ids=lambda plot: plot["kind"],
)
def test_plots_that_fit_the_sweep_are_in_order(plot):
    """Every kind."""
    assert problem_of(plot) is None


@pytest.mark.parametrize(
    ("plot", "place", "reason"),
    [
        (
            {"kind": "curve", "x": "scheduler.chunks", "y": "p99_ttft_ms"},
            ("x",),
            "scheduler.chunks is not swept (did you mean scheduler.chunk?)",
        ),
        (
            {"kind": "curve", "x": CHUNK, "y": "p99_ttf_ms"},
            ("y",),
            "unknown metric 'p99_ttf_ms' (did you mean p99_ttft_ms?)",
        ),
        (
            {"kind": "heat", "x": CHUNK, "y": POLICY, "value": "tenants.chta.p99_ttft_ms"},
            ("value",),
            "(did you mean tenants.chat.p99_ttft_ms?)",
        ),
        ({"kind": "curve", "x": POLICY, "y": "duration"}, ("x",), "(kind bars takes any)"),
        (
            {"kind": "cdf", "where": {CHUNK: [2, 3]}},
            ("where", CHUNK),
            "the sweep has no value 3",
        ),
        ({"kind": "cdf", "of": "warm"}, ("of",), "unknown part of the requests 'warm'"),
        ({"kind": "cdf", "of": "hot", "metric": "itl_ms"}, ("of",), "can only be all with itl_ms"),
        (
            {"kind": "bars", "x": POLICY, "where": {CHUNK: 1}, "lines": "seed", "y": "duration"},
            ("lines",),
            "seed is not swept",
        ),
    ],
)  # fmt: skip
def test_plots_that_do_not_fit_are_refused_with_their_place(plot, place, reason):
    """The key of the plot, and what was perhaps meant."""
    problem = problem_of(plot)
    assert problem.path == ("report", "plots", 0, *place)
    assert reason in problem.reason


def test_plots_of_more_than_twelve_panels_are_refused():
    """One panel for each value of a key that is not named, times the metrics."""
    settings = [{POLICY: p, CHUNK: c} for p in "abcdefg" for c in (1, 2)]
    plot = {"kind": "curve", "x": CHUNK, "y": ["duration", "p99_ttft_ms"]}
    problem = problem_of(plot, Design.of((POLICY, CHUNK), settings))
    assert problem.reason == (
        f"would have 14 panels, above 12 (narrow it down with where: {POLICY})"
    )


def test_plots_without_a_sweep_are_refused():
    """A title alone is not."""
    plot = {"kind": "cdf"}
    assert "no sweep" in check_report(ReportSection(plots=[plot]), None, ()).reason
    assert check_report(ReportSection(title="A"), None, ()) is None


def test_panels_are_made_of_what_the_named_keys_do_not_decide():
    """A key that goes with another one needs no panel; one that does not, does."""
    settings = [
        {POLICY: "fcfs", FAIR: None, CHUNK: 1},
        {POLICY: "lpm", FAIR: 5, CHUNK: 1},
        {POLICY: "fcfs", FAIR: None, CHUNK: 2},
        {POLICY: "lpm", FAIR: 5, CHUNK: 2},
    ]
    design = Design.of((POLICY, FAIR, CHUNK), settings)
    assert design.undecided([CHUNK, POLICY]) == ()
    assert design.undecided([CHUNK]) == (POLICY,)
    assert len(design.panels([FAIR])) == 2


def test_metrics_of_parts_of_the_requests_share_a_panel():
    """Those of one name do; others have their own."""
    panels = panel_metrics(["hot.p99_ttft_ms", "duration", "p99_ttft_ms", "tenants.a.p99_ttft_ms"])
    assert [[metric.group for metric in panel] for panel in panels] == [
        ["hot", "", "tenants.a"],
        [""],
    ]


def test_tenants_are_found_wherever_a_scenario_names_them():
    """In parts of a mix, and among the values of a swept key."""
    parts = {"workload": {"parts": [{"tenant": "a"}, {"tenant": "b"}]}}
    swept = {"sweep": {"workload.tenant": ["c", ""]}}
    assert tenants_of(parts, swept) == {"a", "b", "c"}
