"""Lines that coincide can all be seen."""

from sim.report.figures.covered import uncover
from sim.report.plot_style import new_figure


def test_covered_lines_are_wider_than_those_above():
    """Two lines above make it twice as much; a line of its own stays as it is."""
    axes = new_figure().add_subplot()
    values = ([1, 2, 3], [1, 2, 3.001], [1, 2, 3], [1, 2, 2], [1, 2])
    lines = [axes.plot(range(len(each)), each, linewidth=1, markersize=5) for each in values]
    uncover(axes, lines)
    assert [line.get_linewidth() for (line,) in lines] == [1 + 2 * 2.6, 1 + 2.6, 1, 1, 1]
    assert [line.get_markersize() for (line,) in lines] == [12, 8.5, 5, 5, 5]
