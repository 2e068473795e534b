"""The figure of a search for memory: its lines, knee, ring and numbers of servers."""

import numpy as np

from sim.report.figures.marks import Guide, Line, Note
from sim.report.figures.memory import draw_memory
from sim.report.figures.render import figure_bytes, matplotlib_figure
from sim.report.page import picture_data

MEMORY = {"unlimited_hit_pct": 90.0}


def row(dram_gb, store_tb, cost, hit_pct, **others):
    return {
        "family": "sglang", "verdict": "meets", "replicas": 2, "dram_gb": dram_gb,
        "store_tb": store_tb, "alike_mean_ttft_ms": 100.0 - hit_pct,
        "alike_cache_hit_rate_pct": hit_pct, "cost_per_million_tokens": cost,
    } | others  # fmt: skip


# The best first, as a search has them.
ROWS = [
    row(64, 0, 1.0, 80.0, replicas=1),
    row(128, 0, 1.1, 85.0),
    row(64, 2, 1.2, 88.0),
    row(64, 0, 1.5, 20.0),
    row(32, 0, 1.7, 60.0),
    row(0, 0, 2.0, 40.0, replicas=4),
    row(256, 0, None, 87.0, verdict="misses"),
    row(512, 0, 3.0, 0.0, verdict="cannot run", alike_cache_hit_rate_pct=None),
]


def marks_of(kind, panel):
    return [mark for mark in panel.marks if isinstance(mark, kind)]


def test_figure_has_a_line_for_each_store_of_the_cheapest_servers():
    """Three panels; what misses the SLO has no cost; of two alike, the better one is drawn."""
    [drawn] = draw_memory(ROWS, MEMORY)
    hits, _, cost = drawn.picture.panels
    assert [style.label for style in drawn.picture.legend] == ["no store", "store 2 TB"]
    without, with_store = (line for line in marks_of(Line, hits) if line.has_values)
    assert list(without.y) == [40.0, 60.0, 80.0, 85.0, 87.0]
    assert list(with_store.y) == [88.0]
    assert [list(line.y) for line in marks_of(Line, cost) if line.has_values] == [
        [2.0, 1.7, 1.0, 1.1], [1.2]
    ]  # fmt: skip
    assert sorted(note.text for note in marks_of(Note, cost)) == ["x1", "x2", "x2", "x2", "x4"]
    assert not marks_of(Note, hits)


def test_figure_marks_the_knee_and_the_cheapest():
    """64 GB are the least that find nine tenths of 87 %; an unlimited cache finds 90 %."""
    [drawn] = draw_memory(ROWS, MEMORY)
    hits, ttft, cost = drawn.picture.panels
    assert [(guide.axis, guide.at) for guide in marks_of(Guide, hits)] == [("y", 90.0), ("x", 64.0)]
    assert [guide.at for guide in marks_of(Guide, ttft)] == [64.0]
    [ring] = [line for line in marks_of(Line, cost) if line.fill == "none"]
    assert (list(ring.x), list(ring.y)) == ([64.0], [1.0])


def test_figure_is_drawn_as_a_picture_and_on_a_page():
    """The same marks, twice the same bytes."""
    [drawn] = draw_memory(ROWS, MEMORY)
    first, again = (figure_bytes(matplotlib_figure(drawn.picture), "svg") for _ in range(2))
    assert first == again
    shown = picture_data(drawn.picture)["panels"]
    assert [panel["y"]["label"] for panel in shown] == [
        "hit rate (% of prompt tokens)", "mean TTFT (ms)", "cost of a million tokens"
    ]  # fmt: skip
    values = [mark["y"] for mark in shown[0]["marks"] if mark.get("has_values")]
    assert np.allclose(values[0], [40.0, 60.0, 80.0, 85.0, 87.0])


def test_sizes_along_the_axis_are_those_of_which_there_are_more():
    """Here stores; and without two sizes that meet the SLO, or without a search, no figure."""
    rows = [row(64, size, 1.0 + size, 50.0 + size) for size in (0, 1, 4)]
    [drawn] = draw_memory(rows, MEMORY)
    assert drawn.picture.panels[0].x.label == "store (TB)"
    assert draw_memory(rows[:1], MEMORY) == draw_memory(rows, None) == []
