"""The figure of hit rate against the size of a cache, and what is said of it."""

import numpy as np
import pytest

from sim.report.figures.hit_rates import draw_hit_rates
from sim.report.figures.marks import Line, Note
from sim.report.hit_rates import curve_sentences, listed_sizes
from sim.workload.reuse.curve import HitCurve


def curve(*found):
    """A curve of blocks of 16 tokens and prompts of 640 tokens in all."""
    return HitCurve(16, 90, 60, 640, np.array(found))


def test_figure_marks_the_knee_in_gib():
    """Nine of ten blocks are found from size 3 on: 48 tokens of 2**20 bytes."""
    [panel] = draw_hit_rates(curve(0, 2, 5, 9, 10), 1 << 20).picture.panels
    [note] = [mark.text for mark in panel.marks if isinstance(mark, Note)]
    assert note == "knee: 48 tokens (0.05 GiB), 22.5 %"
    line, knee = (mark for mark in panel.marks if isinstance(mark, Line))
    assert (line.y[0], line.y[-1]) == (5.0, 25.0)
    assert (knee.x, knee.y) == ([48 / 1024], [22.5])


def test_figure_without_hits_has_no_knee():
    """A flat line at zero, with sizes in tokens."""
    [panel] = draw_hit_rates(curve(0), None).picture.panels
    assert not any(isinstance(mark, Note) for mark in panel.marks)
    assert panel.x.label == "size of the cache (tokens, log scale)"
    assert curve_sentences(curve(0), None)[1].startswith("No cache finds anything")


@pytest.mark.parametrize(("most", "sizes"), [(0, [1]), (1, [1]), (4, [1, 2, 4]), (5, [1, 2, 4, 8])])
def test_listed_sizes_end_where_everything_is_found(most, sizes):
    """Powers of two, at most fourteen."""
    assert listed_sizes(curve(*range(most + 1))) == sizes
    assert len(listed_sizes(curve(*range(100_000)))) == 14
