"""The figure of a search for memory: hit rate, TTFT and cost against host memory and stores."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sim.report.figures.axes import KeyAxis, axis_from_zero
from sim.report.figures.marks import (
    BLACK,
    GREY,
    Axis,
    Guide,
    Line,
    Mark,
    Note,
    Panel,
    Picture,
    Style,
    numbered_style,
    placed,
)
from sim.report.figures.plot_parts import Drawn, Layout, slug_of
from sim.report.hit_rates import KNEE
from sim.sweep.capacity.deployments import HIT_RATE, DeploymentVerdict

# The measures of the panels, with their axes' titles.
_MEASURES = {
    HIT_RATE: "hit rate (% of prompt tokens)",
    "mean_ttft_ms": "mean TTFT (ms)",
    "cost_per_million_tokens": "cost of a million tokens",
}
_COST = "cost_per_million_tokens"
_SIZES = {"dram_gb": "DRAM of a server (GB)", "store_tb": "store (TB)"}
_TITLE = "Hit rate, TTFT and cost against memory"
_CAPTION = (
    "Each point is the cheapest deployment with this much memory that meets the SLO; the last panel"
    " has the number of its servers, so TTFT rises where one server fewer is enough. The ring is"
    " the cheapest of all. Across, the dashed line is what an unlimited cache finds; upright, it is"
    f" the knee: the least memory that finds {100 * KNEE:.0f} % of the most that was found, beside"
    " the store of the cheapest."
)

_Row = Mapping[str, Any]


class _Found(NamedTuple):
    """What the panels have in common: rows, lines, the cheapest row, and the sizes along x."""

    rows: Sequence[_Row]
    lines: "Sequence[tuple[Style, list[_Row]]]"
    cheapest: _Row
    x: str
    other: str
    places: KeyAxis
    axis: Axis


def draw_memory(rows: Sequence[_Row], memory: Mapping[str, Any] | None) -> list[Drawn]:
    """The figure; none if memory was not searched for, or fewer than two sizes meet the SLO.

    Args:
        rows: a flat row for each candidate, the best first.
        memory: what results.json says of the traffic's KV.
    """
    known = [row for row in rows if row["verdict"] == DeploymentVerdict.MEETS] if memory else []
    known = [row for row in known if all(row.get(name) is not None for name in _MEASURES)]
    if memory is None or len({(row["dram_gb"], row["store_tb"]) for row in known}) < 2:
        return []
    # The sizes along the axis are those of the tier that has more of them.
    x, other = sorted(_SIZES, key=lambda name: -len({row[name] for row in known}))
    layout = Layout.of(len(_MEASURES))
    places = KeyAxis.of_numbers(x, sorted({row[x] for row in known}), None)
    found = _Found(
        known,
        _lines(known, x, other),
        min(known, key=lambda row: float(row[_COST])),
        x,
        other,
        places,
        places.axis(_SIZES[x], layout.frame_px[0]),
    )
    panels = [
        _panel(found, measure, memory["unlimited_hit_pct"], layout.frame_px)
        for measure in _MEASURES
    ]
    picture = Picture(panels=panels, columns=layout.columns, size_px=layout.size_px, title=_TITLE,
                      legend=[style for style, _ in found.lines])  # fmt: skip
    return [Drawn(picture, slug_of("plan", "memory"), _TITLE, _CAPTION)]


def _panel(found: "_Found", measure: str, unlimited_pct: float, frame_px: tuple[int, int]) -> Panel:
    values = [float(row[measure]) for row in found.rows]
    most = [unlimited_pct] if measure == HIT_RATE else []
    y_axis = axis_from_zero(_MEASURES[measure], np.array([*values, *most]))
    marks: list[Mark] = [Guide(axis="y", at=at, colour=GREY) for at in most]
    knee, first = _knee(found), found.cheapest
    if knee is not None:
        marks.append(Guide(axis="x", at=found.places.place(knee), colour=GREY))
    marks += [_joined(found, style, line, measure) for style, line in found.lines]
    marks.append(
        Line(x=[found.places.place(first[found.x])], y=[float(first[measure])], colour=BLACK,
             width=0, marker="o", fill="none", size=13.0)
    )  # fmt: skip
    if measure == _COST:
        labels = [
            Note(text=f"x{row['replicas']}", x=found.places.place(row[found.x]), y=row[measure],
                 colour=style.colour)
            for style, line in found.lines for row in line
        ]  # fmt: skip
        marks += placed(labels, (found.axis, y_axis), frame_px)
    return Panel(x=found.axis, y=y_axis, marks=marks)


def _lines(rows: Sequence[_Row], x: str, other: str) -> list[tuple[Style, list[_Row]]]:
    """A line for each family and size of the other tier: its cheapest row of each size."""
    found: dict[tuple[str, float], dict[float, _Row]] = {}
    for row in rows:
        found.setdefault((row["family"], row[other]), {}).setdefault(row[x], row)
    has_families = len({family for family, _ in found}) > 1
    has_others = len({size for _, size in found}) > 1
    unit = _SIZES[other].rpartition(" (")
    lines = []
    for number, (family, size) in enumerate(sorted(found)):
        words = [family] if has_families else []
        if has_others:
            words.append(f"{unit[0]} {size:g} {unit[2][:-1]}" if size else f"no {unit[0]}")
        of_line = [found[family, size][at] for at in sorted(found[family, size])]
        lines.append((numbered_style(", ".join(words) or family, number), of_line))
    return lines


def _joined(found: _Found, style: Style, line: Sequence[_Row], measure: str) -> Line:
    return Line(
        x=[found.places.place(row[found.x]) for row in line],
        y=[float(row[measure]) for row in line],
        colour=style.colour,
        line=style.label,
        has_values=True,
        marker=style.marker,
        dash=style.dash,
        fill=style.fill,
    )


def _knee(found: _Found) -> float | None:
    """The least memory that finds `KNEE` of the most that servers like the cheapest find."""
    first = found.cheapest
    alike = [
        row for row in found.rows
        if (row["family"], row[found.other]) == (first["family"], first[found.other])
    ]  # fmt: skip
    most = max(float(row[HIT_RATE]) for row in alike)
    sizes = [float(row[found.x]) for row in alike if row[HIT_RATE] >= KNEE * most]
    return min(sizes) if most else None
