"""Figures as the page's script draws them: the same lines, bars and cells as in the pictures."""

import json
import math
import re
from typing import get_args

import numpy as np

from sim.report.document import page_file
from sim.report.figures.marks import (
    BLACK,
    Axis,
    Band,
    Bars,
    Cells,
    Guide,
    Line,
    Mark,
    Note,
    Panel,
    Picture,
    numbered_style,
)
from sim.report.figures.render import matplotlib_figure
from sim.report.page import picture_data
from sim.report.plots import draw_plot
from sim.scenario.report_section import ReportSection

POLICY, T_MS = "scheduler.schedule_policy", "scheduler.fairness.t_ms"
CHUNK, BUDGET = "scheduler.chunked_prefill_size", "scheduler.max_prefill_tokens"
RATE = "workload.arrivals.rate_rps"
SEEDS = (1, 2, 3)


def data_of(data, **plot):
    drawn = draw_plot(data, ReportSection(plots=[plot]).plots[0])
    found = picture_data(drawn.picture)
    json.dumps(found, allow_nan=False)
    return found


def with_values(panel, line=None):
    return [m for m in panel["marks"] if m.get("has_values") and line in {None, m["line"]}]


def of_kind(panel, kind):
    return [mark for mark in panel["marks"] if mark["kind"] == kind]


def test_curve_has_its_points_intervals_and_names(made_up):
    """One set of points a line, with the ends of its band; infinity by its name."""
    data = made_up({CHUNK: [128, 512, -1], POLICY: ["fcfs", "lpm"]},
                   lambda s, seed: {"p99_ttft_ms": 100.0 + seed}, SEEDS)  # fmt: skip
    found = data_of(data, kind="curve", x=CHUNK, y="p99_ttft_ms", lines=POLICY)
    assert [entry["label"] for entry in found["legend"]] == ["fcfs", "lpm"]
    [panel] = found["panels"]
    for line in ("fcfs", "lpm"):
        [points] = with_values(panel, line)
        assert points["y"] == [102.0] * 3
        assert max(points["low"]) < 102 < min(points["high"])
    assert points["x"][:2] == [128.0, 512.0]
    assert dict(panel["x"]["ticks"])[points["x"][2]] == "∞"
    assert panel["y"]["label"] == "p99 TTFT (ms)"


def test_bars_are_bars_with_intervals_on_named_places(made_up):
    """Side by side; the pattern of the second group goes along."""
    data = made_up({POLICY: ["fcfs", "lpm"]}, lambda s, seed: {"p99_ttft_ms": 300.0 + seed}, SEEDS)
    [panel] = data_of(data, kind="bars", x=POLICY, y="p99_ttft_ms")["panels"]
    [bars] = with_values(panel)
    assert (bars["kind"], bars["y"], bars["x"]) == ("bars", [302.0, 302.0], [0.0, 1.0])
    assert [text for _, text in panel["x"]["ticks"]] == ["fcfs", "lpm"]
    assert bars["low"][0] < 302 < bars["high"][0]


def test_load_marks_the_first_saturated_load_across_the_panel(made_up):
    """A guide of the line's own; the line on which as much is served as sent is no line of it."""
    data = made_up(
        {RATE: [1, 2, 3]}, lambda s, _: {"request_rate": s[RATE], "saturated": s[RATE] > 2}
    )
    panel = data_of(data, kind="load", x=RATE)["panels"][0]
    assert [(guide["axis"], guide["at"]) for guide in of_kind(panel, "guide")] == [("x", 3.0)]
    assert [mark["x"] for mark in with_values(panel)] == [[1.0, 2.0, 3.0]]
    assert [mark["x"] for mark in of_kind(panel, "line") if mark["fill"] == "hollow"] == [[3.0]]


def test_heat_map_has_values_texts_and_the_colours_range(made_up):
    """Values as they are, columns and rows by their names, round ticks of the colours."""
    data = made_up({CHUNK: [128, 512], BUDGET: [1024, 4096]},
                   lambda s, _: {"p99_ttft_ms": s[CHUNK] + s[BUDGET]})  # fmt: skip
    [panel] = data_of(data, kind="heat", x=CHUNK, y=BUDGET, value="p99_ttft_ms")["panels"]
    [cells] = of_kind(panel, "cells")
    assert cells["values"] == [[1152.0, 1536.0], [4224.0, 4608.0]]
    assert cells["colours"]["limits"] == [1152.0, 4608.0]
    named = [[text for _, text in panel[axis]["ticks"]] for axis in "xy"]
    assert named == [["128", "512"], ["1024", "4096"]]
    assert cells["texts"][0][0] == "1.15 s"
    assert [text for _, text in cells["colours"]["ticks"]] == ["1500", "2000", "2500", "3000",
                                                               "3500", "4000", "4500"]  # fmt: skip


def test_trade_off_has_its_labels_as_notes(made_up):
    """Each point has the value of the key that it stands for."""
    data = made_up(
        {T_MS: [10, 100, 300]},
        lambda s, _: {"p99_ttft_ms": 100.0 + s[T_MS], "cache_hit_rate_pct": 0.01 * s[T_MS] ** 1.5},
    )
    plot = {"x": "p99_ttft_ms", "y": "cache_hit_rate_pct", "along": T_MS}
    [panel] = data_of(data, kind="trade-off", **plot)["panels"]
    texts = {note["text"].removeprefix("knee: ") for note in of_kind(panel, "note")}
    assert texts == {"10", "100", "300", "SLO 500 ms"}


def test_both_renderers_know_every_kind_of_mark():
    """matplotlib draws something for each, and the page's script has the kind's name."""
    axis = Axis(label="")
    marks = [
        Line(x=[0, 1], y=[0, 1], colour=BLACK, marker="o", fill="hollow", steps=True),
        Band(x=[0, 1], low=[0, 0], high=[1, 1], colour=BLACK),
        Bars(x=[0], y=[1], width=1, colour=BLACK, hatch="//"),
        Cells(values=np.ones((1, 1)), texts=[["1"]], colours=axis),
        Guide(axis="x", at=0, colour=BLACK),
        Note(text="a", x=0, y=0, colour=BLACK, is_far=True),
    ]
    assert [type(mark) for mark in marks] == list(get_args(Mark))
    script = page_file("report.js")
    for mark in marks:
        panels = [Panel(x=axis, y=axis, marks=each) for each in ([mark], [])]
        picture = Picture(panels=panels, columns=2, size_px=(400, 200))
        drawn, empty, *_ = matplotlib_figure(picture).axes
        assert len(drawn.get_children()) > len(empty.get_children())
        kind = picture_data(picture)["panels"][0]["marks"][0]["kind"]
        assert re.search(rf'^  {kind}\(mark, panel\)|kind === "{kind}"', script, re.MULTILINE)


def test_gaps_and_undefined_values_are_null_on_the_page():
    """JSON has no NaN; numbers have six digits."""
    line = Line(x=np.array([1.0, math.nan]), y=[math.inf, 1 / 3], colour=BLACK)
    panel = Panel(x=Axis(label=""), y=Axis(label=""), marks=[line])
    data = picture_data(Picture(panels=[panel], columns=1, size_px=(400, 200)))
    [found] = data["panels"][0]["marks"]
    assert (found["x"], found["y"]) == ([1.0, None], [None, 0.333333])


def test_no_two_lines_have_the_same_colour_and_marker_nor_bars_colour_and_pattern():
    """Of 28 lines, and of 7 lines with 4 groups of requests each."""
    lines = [numbered_style("", number) for number in range(28)]
    groups = [numbered_style("", number, dash) for number in range(7) for dash in range(4)]
    for styles in (lines, groups):
        assert len({(style.colour, style.marker) for style in styles}) == 28
        assert len({(style.colour, style.hatch) for style in styles}) == 28


def test_log_axis_leaves_out_intervals_that_reach_below_it(made_up):
    """No band to the floor; the caption says so. A linear axis cuts them, and says that."""
    means = {128: 10.0, 256: 100.0, 512: 50.0}
    noise = {128: 0.01, 256: 0.01, 512: 0.9}
    data = made_up(
        {CHUNK: list(means)},
        lambda s, seed: {"p99_ttft_ms": means[s[CHUNK]] * (1 + noise[s[CHUNK]] * (seed - 2))},
        SEEDS,
    )
    for scale, said in (("log", "Those that reach below a log axis are not drawn."),
                        ("linear", "cut off at the frame")):  # fmt: skip
        plot = {"kind": "curve", "x": CHUNK, "y": "p99_ttft_ms", "y_scale": scale}
        assert said in draw_plot(data, ReportSection(plots=[plot]).plots[0]).caption
        [panel] = data_of(data, **plot)["panels"]
        [points] = with_values(panel)
        floor = panel["y"]["limits"][0]
        assert points["low"][2] is None if scale == "log" else points["low"][2] < floor


def test_bars_leave_out_a_value_without_results(made_up):
    """It has no place on the axis, and the caption names it."""
    data = made_up({POLICY: ["fcfs", "lpm", "lof"]},
                   lambda s, _: {"p99_itl_ms": None if s[POLICY] == "lof" else 5.0})  # fmt: skip
    plot = ReportSection(plots=[{"kind": "bars", "x": POLICY, "y": "p99_itl_ms"}]).plots[0]
    drawn = draw_plot(data, plot)
    assert [text for _, text in drawn.picture.panels[0].x.ticks] == ["fcfs", "lpm"]
    assert "Nothing can be shown for schedule_policy lof" in drawn.caption
