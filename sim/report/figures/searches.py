"""The figures of searches: for settings, and for deployments.

Of settings: a search's progress, the objective by each key, and what it costs in TTFT. Of
deployments: tokens/s for each user against tokens/s of each GPU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sim.core.arrays import Float64
from sim.metrics.latencies import slo_limits
from sim.metrics.registry import MetricName
from sim.report.capacity_tables import short_deployments
from sim.report.figures.axes import KeyAxis, MetricAxis, axis_from_zero, padded, value_axis
from sim.report.figures.key_text import key_label
from sim.report.figures.marks import (
    BLACK,
    GREY,
    PALETTE,
    Axis,
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
from sim.report.figures.plot_check import is_number
from sim.report.figures.plot_parts import Drawn, Layout, limit_marks, slug_of
from sim.sweep.results import same
from sim.sweep.tune.results import OBJECTIVE, OWN, TrialResult, TuneResults
from sim.tables.table import number

_MEETS = Style("meets the conditions", PALETTE[0], is_joined=False)
_MISSES = Style("misses a condition", GREY, is_joined=False, marker="X")
_OWN = Style("as written", PALETTE[1], is_joined=False, marker="s")
_WINNER = Style("winner", BLACK, is_joined=False, marker="D")
# More panels would hide the rest of the page.
_MAX_KEYS = 9


class _Kind(NamedTuple):
    """Trials that look alike."""

    style: Style
    trials: Sequence[TrialResult]


def draw_tune(results: TuneResults, scenario: Mapping[str, Any]) -> list[Drawn]:
    """The figures; none if no trial has results."""
    if not results.ranked():
        return []
    return [_progress(results), _by_key(results), _against_ttft(results, scenario)]


def _progress(results: TuneResults) -> Drawn:
    done = sorted(results.ranked(), key=lambda trial: trial.trial)
    best = _best_so_far(done)
    line = Line(x=list(best), y=list(best.values()), colour=BLACK, line=_BEST, has_values=True,
                width=1.1, steps=True)  # fmt: skip
    dots = _dots(results, {trial.trial: float(trial.trial) for trial in done})
    limits = padded(0, max(done[-1].trial, 1), 0.05, is_log=False)
    panel = Panel(x=Axis(label="trial", limits=limits), y=_objective_axis(results),
                  marks=[*dots, line])  # fmt: skip
    legend = [*_legend(results), Style(_BEST, BLACK, marker="")]
    caption = (
        "Each dot is a setting, in the order in which they were tried; the line is the best one"
        " that meets the conditions so far. Trial 0 is the scenario as written."
    )
    return _drawn(results, [panel], "by trial", ("trials", results.objective), caption, legend)


_BEST = "best so far"


def _best_so_far(done: Sequence[TrialResult]) -> dict[int, float]:
    """The objective of the best trial up to each that meets the conditions."""
    found: dict[int, float] = {}
    best: TrialResult | None = None
    for trial in done:
        if trial.meets and (best is None or trial.rank() < best.rank()):
            best = trial
        if best is not None:
            found[trial.trial] = _objective(best)
    return found


def _by_key(results: TuneResults) -> Drawn:
    keys = results.keys[:_MAX_KEYS]
    width_px, _ = Layout.of(len(keys)).frame_px
    panels = []
    for key in keys:
        axis = _key_axis(results, key)
        places = {trial.trial: axis.place(trial.settings[key]) for trial in results.ranked()}
        panels.append(Panel(x=axis.axis(key_label(key, results.keys), width_px),
                            y=_objective_axis(results), marks=_dots(results, places)))  # fmt: skip
    caption = "Each dot is a setting; the other keys vary, too."
    if len(results.keys) > _MAX_KEYS:
        caption += f" {len(results.keys) - _MAX_KEYS} more keys are in results.csv."
    return _drawn(results, panels, "by each key", ("keys", results.objective), caption)


def _key_axis(results: TuneResults, key: str) -> KeyAxis:
    values = {same(trial.settings[key]): trial.settings[key] for trial in results.ranked()}
    listed = list(values.values())
    if all(value is None or is_number(value) for value in listed) and any(map(is_number, listed)):
        return KeyAxis.of_numbers(key, listed, None)
    return KeyAxis.of_names(key, sorted(listed, key=same))


def _against_ttft(results: TuneResults, scenario: Mapping[str, Any]) -> Drawn:
    metric = MetricName.of("p99_ttft_ms")
    found = {trial.trial: trial.interval(metric.name).mean for trial in results.ranked()}
    places = {number: value for number, value in found.items() if value is not None}
    limit = _limit(results, scenario, metric.name)
    shown = [*places.values(), *([] if limit is None else [limit])]
    x = value_axis([metric], shown, scale=None, label=None)
    panel = Panel(x=x, y=_objective_axis(results),
                  marks=[*limit_marks(limit, x, "x"), *_dots(results, places)])  # fmt: skip
    caption = "Each dot is a setting."
    if limit is not None:
        caption += " The dashed red line is the limit of the SLO or of the constraints."
    slug = (results.objective, metric.name)
    return _drawn(results, [panel], f"against {metric.label}", slug, caption)


def _limit(results: TuneResults, scenario: Mapping[str, Any], name: str) -> float | None:
    """The limit of a constraint, or else of the scenario's SLO."""
    slo = scenario.get("slo")
    slo = slo if isinstance(slo, Mapping) else {}
    limits = {key.removesuffix("_ms"): value for key, value in slo.items() if key.endswith("_ms")}
    known = {key: value for key, value in limits.items() if is_number(value) and value > 0}
    percentile = slo.get("percentile", 99)
    held = slo_limits({"goodput_slos_ms": known, "slo_percentile": percentile})
    return results.limits.get(name, held.get(name))


def _dots(results: TuneResults, places: Mapping[int, float]) -> list[Mark]:
    """A dot for each trial that has a place, and a ring around the winner."""
    marks: list[Mark] = []
    for style, trials in _kinds(results):
        shown = [trial for trial in trials if trial.trial in places]
        dots = Line(x=[places[trial.trial] for trial in shown],
                          y=[_objective(trial) for trial in shown], colour=style.colour,
                          line=style.label, has_values=True, width=0, marker=style.marker, size=7,
                          on_top=style in (_OWN, _WINNER))  # fmt: skip
        marks.append(dots)
        if style is _WINNER and shown:
            marks.append(replace(dots, has_values=False, marker="o", fill="none", size=15))
    return marks


def _drawn(
    results: TuneResults, panels: Sequence[Panel], words: str, slug: Sequence[str], caption: str,
    legend: Sequence[Style] = (),
) -> Drawn:  # fmt: skip
    layout = Layout.of(len(panels))
    title = f"{results.objective.capitalize()} {words}"
    picture = Picture(panels=panels, columns=layout.columns, size_px=layout.size_px, title=title,
                      legend=legend or _legend(results))  # fmt: skip
    return Drawn(picture, slug_of("tune", *slug), title, caption)


def _kinds(results: TuneResults) -> list[_Kind]:
    """Every trial with results in one kind; kinds without any are left out."""
    winner, written = results.winner, results.trials[OWN]
    rest = [trial for trial in results.ranked() if trial not in (winner, written)]
    is_other = written.sought is not None and written is not winner
    kinds = [
        _Kind(_MEETS, [trial for trial in rest if trial.meets]),
        _Kind(_MISSES, [trial for trial in rest if not trial.meets]),
        _Kind(_OWN, [written] if is_other else []),
        _Kind(_WINNER, [] if winner is None else [winner]),
    ]
    return [kind for kind in kinds if kind.trials]


def _legend(results: TuneResults) -> list[Style]:
    return [kind.style for kind in _kinds(results)]


def _objective(trial: TrialResult) -> float:
    return trial.interval(OBJECTIVE).mean or 0.0


def _objective_axis(results: TuneResults) -> Axis:
    shown = [trial.interval(OBJECTIVE) for trial in results.ranked()]
    named = MetricName.of("request_goodput")
    label = f"{results.objective} ({results.unit})"
    return MetricAxis.of([named], shown, scale="linear", label=label).axis


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
