"""The figure of a search for memory: hit rate, TTFT and cost against host memory and stores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sim.metrics.registry import MetricName
from sim.report.figures.axes import KeyAxis, axis_from_zero, value_axis
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

_HITS, _TTFT, _COST = f"alike_{HIT_RATE}", "alike_mean_ttft_ms", "cost_per_million_tokens"
_SIZES = {"dram_gb": "DRAM of a server (GB)", "store_tb": "store (TB)"}
_TITLE = "Hit rate, TTFT and cost against memory"
_CAPTION = (
    "Hit rate and TTFT are those of as many servers as the cheapest deployment has, whether they"
    " meet the SLO or not; cost is that of as many servers as meet it, whose number is beside each"
    " point. Policies and routers are the best of those tried. The ring is the cheapest deployment."
    " Across, the dashed line is what an unlimited cache finds; upright, it is the knee: the least"
    f" memory that finds {100 * KNEE:.0f} % of the most that was found, beside the same store."
)

_Row = Mapping[str, Any]


class _Group(NamedTuple):
    """The rows of a line: those of a family, and of a size of the tier that is not on the axis."""

    style: Style
    rows: Sequence[_Row]


class _Found(NamedTuple):
    """What the panels have in common: the lines, the cheapest row, and the sizes along x."""

    groups: Sequence[_Group]
    cheapest: _Row
    x: str
    other: str
    places: KeyAxis
    axis: Axis


def draw_memory(rows: Sequence[_Row], memory: Mapping[str, Any] | None) -> list[Drawn]:
    """The figure; none if memory was not searched for, or fewer than two sizes were simulated.

    Args:
        rows: a flat row for each candidate, the best first.
        memory: what results.json says of the traffic's KV.
    """
    known = [row for row in rows if _has(row, _HITS, _TTFT)] if memory else []
    meeting = [row for row in known if _meets(row)]
    sizes = {tuple(row[name] for name in _SIZES) for row in known}
    if memory is None or not meeting or len(sizes) < 2:
        return []
    # The sizes along the axis are those of the tier that has more of them.
    x, other = sorted(_SIZES, key=lambda name: -len({row[name] for row in known}))
    layout = Layout.of(3)
    places = KeyAxis.of_numbers(x, sorted({row[x] for row in known}), None)
    found = _Found(
        _groups(known, other),
        min(meeting, key=lambda row: float(row[_COST])),
        x,
        other,
        places,
        places.axis(_SIZES[x], layout.frame_px[0]),
    )
    panels = [
        _hits(found, memory["unlimited_hit_pct"]),
        _ttft(found),
        _cost(found, layout.frame_px),
    ]
    picture = Picture(panels=panels, columns=layout.columns, size_px=layout.size_px, title=_TITLE,
                      legend=[group.style for group in found.groups])  # fmt: skip
    return [Drawn(picture, slug_of("plan", "memory"), _TITLE, _CAPTION)]


def _has(row: _Row, *names: str) -> bool:
    return all(row.get(name) is not None for name in (*_SIZES, *names))


def _meets(row: _Row) -> bool:
    return row["verdict"] == DeploymentVerdict.MEETS and _has(row, _COST, "replicas")


def _groups(rows: Sequence[_Row], other: str) -> list[_Group]:
    found: dict[tuple[str, float], list[_Row]] = {}
    for row in rows:
        found.setdefault((row["family"], row[other]), []).append(row)
    has_families = len({family for family, _ in found}) > 1
    has_others = len({size for _, size in found}) > 1
    tier, _, unit = _SIZES[other].removesuffix(")").rpartition(" (")
    groups = []
    for number, (family, size) in enumerate(sorted(found)):
        words = [family] if has_families or not has_others else []
        if has_others:
            words.append(f"{tier} {size:g} {unit}" if size else f"no {tier}")
        groups.append(_Group(numbered_style(", ".join(words), number), found[family, size]))
    return groups


def _hits(found: _Found, unlimited_pct: float) -> Panel:
    best = [_best(found, group.rows, lambda row: -float(row[_HITS])) for group in found.groups]
    values = [float(row[_HITS]) for rows in best for row in rows]
    y = axis_from_zero("hit rate (% of prompt tokens)", np.array([*values, unlimited_pct]))
    guide = Guide(axis="y", at=unlimited_pct, colour=GREY)
    return _panel(found, y, _HITS, best, [guide])


def _ttft(found: _Found) -> Panel:
    best = [_best(found, group.rows, lambda row: float(row[_TTFT])) for group in found.groups]
    values = [float(row[_TTFT]) for rows in best for row in rows]
    y = value_axis([MetricName.of("mean_ttft_ms")], values, scale=None, label=None)
    return _panel(found, y, _TTFT, best)


def _cost(found: _Found, frame_px: tuple[int, int]) -> Panel:
    best = [
        _best(found, [row for row in group.rows if _meets(row)], lambda row: float(row[_COST]))
        for group in found.groups
    ]
    values = np.array([float(row[_COST]) for rows in best for row in rows])
    y = axis_from_zero("cost of a million tokens", values)
    panel = _panel(found, y, _COST, best)
    labels = [
        Note(text=f"x{row['replicas']}", x=found.places.place(row[found.x]), y=row[_COST],
             colour=group.style.colour)
        for group, rows in zip(found.groups, best, strict=True) for row in rows
    ]  # fmt: skip
    return replace(panel, marks=[*panel.marks, *placed(labels, (found.axis, y), frame_px)])


def _best(found: _Found, rows: Sequence[_Row], key: Callable[[_Row], float]) -> list[_Row]:
    """The row of each size along the axis that is least by a key, in the order of sizes."""
    best: dict[float, _Row] = {}
    for row in sorted(rows, key=key):
        best.setdefault(row[found.x], row)
    return [best[size] for size in sorted(best)]


def _panel(
    found: _Found,
    y: Axis,
    measure: str,
    best: Sequence[Sequence[_Row]],
    under: Sequence[Mark] = (),
) -> Panel:
    """A line for each group through its best rows, the knee, and a ring around the cheapest."""
    marks, knee, first = list(under), _knee(found), found.cheapest
    if knee is not None:
        marks.append(Guide(axis="x", at=found.places.place(knee), colour=GREY))
    for group, rows in zip(found.groups, best, strict=True):
        style = group.style
        marks.append(
            Line(x=[found.places.place(row[found.x]) for row in rows],
                 y=[float(row[measure]) for row in rows], colour=style.colour, line=style.label,
                 has_values=True, marker=style.marker, dash=style.dash, fill=style.fill)
        )  # fmt: skip
    marks.append(
        Line(x=[found.places.place(first[found.x])], y=[float(first[measure])], colour=BLACK,
             width=0, marker="o", fill="none", size=13.0)
    )  # fmt: skip
    return Panel(x=found.axis, y=y, marks=marks)


def _knee(found: _Found) -> float | None:
    """The least memory that finds `KNEE` of the most that servers like the cheapest find."""
    first = found.cheapest
    place = first["family"], first[found.other]
    alike = [
        row for group in found.groups for row in group.rows
        if (row["family"], row[found.other]) == place
    ]  # fmt: skip
    most = max(float(row[_HITS]) for row in alike)
    sizes = [float(row[found.x]) for row in alike if row[_HITS] >= KNEE * most]
    return min(sizes) if most else None
