"""Lines that coincide can all be seen."""

from sim.report.figures.marks import Axis, Line
from sim.report.figures.over_key import uncovered
from sim.report.figures.plot_parts import Layout


def test_covered_lines_are_wider_than_those_above():
    """Two lines above make it twice as much; a line of its own stays as it is."""
    values = ([1, 2, 3], [1, 2, 3.001], [1, 2, 3], [1, 2, 2], [1, 2])
    lines = [
        [Line(x=range(len(each)), y=each, colour="#000000", has_values=True, width=1, size=5)]
        for each in values
    ]
    x, y = (Axis(label="", limits=(0, 3)) for _ in "xy")
    found = list(uncovered(lines, x, y, Layout.of(1)))
    assert [line.width for line in found] == [1 + 2 * 2.6, 1 + 2.6, 1, 1, 1]
    assert [line.size for line in found] == [5 + 2 * 3.5, 8.5, 5, 5, 5]
