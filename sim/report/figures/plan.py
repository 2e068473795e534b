"""The figure of a search for deployments: tokens/s for each user against tokens/s of each GPU."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sim.core.arrays import Float64
from sim.report.capacity_front import short_deployments
from sim.report.figures.axes import axis_from_zero
from sim.report.figures.marks import (
    BLACK,
    GREY,
    Fill,
    Line,
    Mark,
    Note,
    Panel,
    Picture,
    Style,
    numbered_style,
    placed,
    segments,
)
from sim.report.figures.plot_parts import Drawn, Layout, slug_of
from sim.tables.table import number

_FRONT = Style("front", BLACK, marker="", is_joined=True)
_OTHERS = Style("not on the front", GREY, is_joined=False)
_X, _Y = "tokens_per_user", "tokens_per_gpu"
_CAPTION = (
    "Each point is a deployment under a load ({unit}, written beside it); the black line joins"
    " those that no other beats. Hollow points miss the SLO. Thin bars are 90 % intervals of real"
    " servers, where servers like these were measured."
)


def draw_plan(loads: Sequence[dict[str, Any]]) -> list[Drawn]:
    """The figure; none if nothing that was tried has both numbers."""
    known = [row for row in loads if row[_X] is not None and row[_Y] is not None]
    front = sorted((row for row in known if row["on_front"]), key=lambda row: float(row[_X]))
    if not front:
        return []
    others = [row for row in known if not row["on_front"] and not row["saturated"]]
    styles = _styles(front)
    layout = Layout.of(1)
    x, y = (
        axis_from_zero(label, _values([*front, *others], name), _ends(front, name))
        for label, name in (
            ("tokens/s for each user (1 / mean TPOT)", _X),
            ("output tokens/s of each GPU", _Y),
        )
    )
    joined = Line(x=_values(front, _X), y=_values(front, _Y), colour=BLACK, line=_FRONT.label)
    dots = Line(x=_values(others, _X), y=_values(others, _Y), colour=GREY, line=_OTHERS.label,
                has_values=True, width=0, marker="o", size=4, opacity=0.6)  # fmt: skip
    labels = [
        Note(text=number(row["load"]), x=row[_X], y=row[_Y],
             colour=styles[_name(row)].colour)
        for row in front
    ]  # fmt: skip
    marks = [dots, joined, *(mark for row in front for mark in _point(row, styles))]
    panel = Panel(x=x, y=y, marks=[*marks, *placed(labels, (x, y), layout.frame_px)])
    title = "Tokens/s for each user against tokens/s of each GPU"
    legend = [*styles.values(), _FRONT, *([_OTHERS] if others else [])]
    picture = Picture(panels=[panel], columns=1, size_px=layout.size_px, title=title, legend=legend)
    caption = _CAPTION.format(unit=front[0]["load_unit"])
    return [Drawn(picture, slug_of("plan", "front"), title, caption)]


def _name(row: dict[str, Any]) -> str:
    return f"{row['deployment']} x {row['servers']}"


def _styles(front: Sequence[dict[str, Any]]) -> dict[str, Style]:
    """A style for each deployment; what all of them have in common is not in its label."""
    short = short_deployments(front)
    labels = {_name(row): f"{short[row['deployment']]} x {row['servers']}" for row in front}
    return {
        name: numbered_style(label, place) for place, (name, label) in enumerate(labels.items())
    }


def _values(rows: Sequence[dict[str, Any]], name: str) -> Float64:
    return np.array([row[name] for row in rows], dtype=np.float64)


def _ends(rows: Sequence[dict[str, Any]], name: str) -> Float64:
    """The upper ends of the intervals, as far as there are any."""
    ends = [row[f"{name}_high"] for row in rows]
    return np.array([end for end in ends if end is not None], dtype=np.float64)


def _point(row: dict[str, Any], styles: dict[str, Style]) -> list[Mark]:
    """A point of the front, and thin bars through its intervals."""
    style = styles[_name(row)]
    marks: list[Mark] = []
    for name, other in ((_X, _Y), (_Y, _X)):
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        if low is None or high is None:
            continue
        across, along = segments([row[other]], [low], [high])
        x, y = (along, across) if name == _X else (across, along)
        marks.append(Line(x=x, y=y, colour=style.colour, line=style.label, width=0.8, opacity=0.4))
    fill: Fill = "full" if row["meets"] else "hollow"
    point = Line(x=[row[_X]], y=[row[_Y]], colour=style.colour, line=style.label, has_values=True,
                 width=0, marker=style.marker, fill=fill, size=7)  # fmt: skip
    return [*marks, point]
