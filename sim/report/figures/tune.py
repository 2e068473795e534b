"""The figures of a search: its progress, the objective by each key, and what it costs in TTFT."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sim.metrics.latencies import slo_limits
from sim.metrics.registry import MetricName
from sim.report.figures.axes import KeyAxis, MetricAxis, padded, value_axis
from sim.report.figures.key_text import key_label
from sim.report.figures.marks import BLACK, GREY, PALETTE, Axis, Line, Mark, Panel, Picture, Style
from sim.report.figures.plot_check import is_number
from sim.report.figures.plot_parts import Drawn, Layout, limit_marks, slug_of
from sim.sweep.results import same
from sim.sweep.tune.results import OBJECTIVE, OWN, TrialResult, TuneResults

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
