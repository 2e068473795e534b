"""Reads the lines, bands and bars of a panel off matplotlib."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex, to_rgba
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch

from sim.report.figures.ownership import Owner, owner_of
from sim.report.interactive.marks import Guide, Mark, Numbers

_POINT_PX = 4 / 3
_NOTHING = ("", "None", "none", " ", None)
_CAPS = ("|", "_")
_DASHES = {"--": "8px,4px", ":": "2px,3px", "-.": "8px,4px,2px,4px"}


def read_marks(axes: Axes) -> Iterator[Mark]:
    """The marks of a panel, the lowest first."""
    owners = {id(part): owner_of(container.get_label())
              for container in axes.containers for part in _parts(container)}  # fmt: skip
    for collection in axes.collections:
        owner = owners.get(id(collection), owner_of(collection.get_label()))
        if isinstance(collection, LineCollection):
            yield _intervals(collection, owner)
        elif isinstance(collection, PolyCollection):
            yield from _band(collection, owner)
    for container in axes.containers:
        if isinstance(container, BarContainer) and container.patches:
            yield _bars(container)
    for patch in axes.patches:
        if isinstance(patch, StepPatch):
            yield _stairs(patch)
    for line in _drawn_lines(axes):
        if _follows(line, axes) == (True, True):
            yield _line(line)


def read_guides(axes: Axes) -> Iterator[Guide]:
    """Lines straight across the panel."""
    for line in _drawn_lines(axes):
        follows_x, follows_y = _follows(line, axes)
        if follows_x == follows_y:
            continue
        at = line.get_xdata() if follows_x else line.get_ydata()
        yield Guide(
            axis="x" if follows_x else "y",
            at=float(np.asarray(at, dtype=np.float64)[0]),
            colour=to_hex(line.get_color()),
            dash=_dash(line),
            line=owner_of(line.get_label()).line,
        )


def _parts(container: Any) -> Iterable[Artist]:
    if isinstance(container, ErrorbarContainer):
        return [part for part in container.get_children() if part is not None]
    return ()


def _drawn_lines(axes: Axes) -> Iterator[Line2D]:
    """Lines that can be seen, without the caps of error bars."""
    for line in axes.lines:
        is_joined = line.get_linestyle() not in _NOTHING
        if line.get_marker() not in _CAPS and (is_joined or line.get_marker() not in _NOTHING):
            yield line


def _follows(line: Line2D, axes: Axes) -> tuple[bool, bool]:
    """Whether the line's x and y are values of the axes."""
    follows_x, follows_y = line.get_transform().contains_branch_seperately(axes.transData)
    return bool(follows_x), bool(follows_y)


def _line(line: Line2D) -> Mark:
    owner = owner_of(line.get_label())
    is_joined = line.get_linestyle() not in _NOTHING
    has_marker = line.get_marker() not in _NOTHING
    face = line.get_markerfacecolor()
    is_full = has_marker and line.get_fillstyle() == "full"
    is_hollow = is_full and to_hex(face) == "#ffffff"
    return Mark(
        line=owner.line,
        kind="line",
        has_values=owner.has_values,
        colour=to_hex(line.get_color() if is_joined or not has_marker
                      else line.get_markeredgecolor() if is_hollow else line.get_color()),
        x=_numbers(line.get_xdata()),
        y=_numbers(line.get_ydata()),
        opacity=line.get_alpha() or 1.0,
        dash=_dash(line) if is_joined else "",
        width=line.get_linewidth() * _POINT_PX if is_joined else 0.0,
        marker=str(line.get_marker()) if has_marker else "",
        fill="hollow" if is_hollow else str(line.get_fillstyle()),
        size=line.get_markersize() * _POINT_PX if has_marker else 0.0,
        steps=line.get_drawstyle() == "steps-post",
    )  # fmt: skip


def _dash(line: Line2D) -> str:
    # matplotlib has no public way to ask for a pattern of dashes.
    _, pattern = getattr(line, "_unscaled_dash_pattern", (0, None))
    if pattern:
        scale = line.get_linewidth() * _POINT_PX
        return ",".join(f"{max(1.0, part * scale):.3g}px" for part in pattern)
    return _DASHES.get(str(line.get_linestyle()), "")


def _intervals(collection: LineCollection, owner: Owner) -> Mark:
    """Vertical or horizontal lines: intervals of points."""
    x: list[float | None] = []
    y: list[float | None] = []
    for segment in collection.get_segments():
        x += [*map(float, segment[:, 0]), None]
        y += [*map(float, segment[:, 1]), None]
    colour, width = _first(collection.get_colors()), _first(collection.get_linewidth())
    return Mark(line=owner.line, kind="line", colour=to_hex(colour), x=x, y=y,
                opacity=float(to_rgba(colour)[3]), width=float(width) * _POINT_PX)  # fmt: skip


def _band(collection: PolyCollection, owner: Owner) -> Iterator[Mark]:
    """The area between two curves; a band with values also gets a line at its upper end."""
    colour = _first(collection.get_facecolor())
    for path in collection.get_paths():
        x, y = np.asarray(path.vertices, dtype=np.float64).T
        yield Mark(line=owner.line, kind="band", colour=to_hex(colour), x=_numbers(x),
                   y=_numbers(y), opacity=float(to_rgba(colour)[3]))  # fmt: skip
        if not owner.has_values:
            continue
        # The outline goes along the lower curve and comes back along the upper one.
        num = (len(x) - 3) // 2
        lower, upper = slice(1, num + 1), slice(num + 2, 2 * num + 2)
        yield Mark(line=owner.line, kind="line", has_values=True, colour=to_hex(colour),
                   x=_numbers(x[lower]), y=_numbers(y[upper][::-1] - y[lower]), opacity=0.0,
                   width=1.0)  # fmt: skip


def _bars(container: BarContainer) -> Mark:
    first, owner = container.patches[0], owner_of(container.get_label())
    return Mark(
        line=owner.line,
        kind="bars",
        has_values=owner.has_values,
        colour=to_hex(first.get_facecolor()),
        x=[bar.get_x() + bar.get_width() / 2 for bar in container.patches],
        y=[bar.get_height() for bar in container.patches],
        width=first.get_width(),
        dash="hatch" if first.get_hatch() else "",
    )


def _stairs(patch: StepPatch) -> Mark:
    heights, edges, _ = patch.get_data()
    owner = owner_of(patch.get_label())
    return Mark(line=owner.line, kind="line", has_values=owner.has_values, steps=True,
                colour=to_hex(patch.get_edgecolor()), x=_numbers(edges),
                y=_numbers([*heights, heights[-1]]),
                width=patch.get_linewidth() * _POINT_PX)  # fmt: skip


def _first(values: Any) -> Any:
    return values[0] if isinstance(values, Sequence | np.ndarray) and len(values) else values


def _numbers(values: Any) -> Numbers:
    """The values with six significant digits; None for what is not finite."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None
            for value in np.asarray(values, dtype=np.float64).ravel().tolist()]  # fmt: skip
