"""The figures of a search: its progress, the objective by each key, and what it costs in TTFT."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from sim.metrics.metric_name import MetricName
from sim.metrics.slo import slo_limits
from sim.report.figures.canvas import Drawn, Style, panel_grid, put_header
from sim.report.figures.captions import slug_of
from sim.report.figures.metric_axis import MetricAxis, Zero
from sim.report.figures.ownership import beside, own
from sim.report.figures.scales import KeyAxis
from sim.report.figures.slo import draw_limit
from sim.report.key_text import key_label
from sim.report.plot_check import is_number
from sim.report.plot_style import GREY, PALETTE, styled
from sim.sweep.design import same
from sim.sweep.tune_results import OBJECTIVE, OWN, TrialResult, TuneResults

_MEETS = Style("meets the conditions", PALETTE[0], dash="none")
_MISSES = Style("misses a condition", GREY, dash="none", marker="X")
_OWN = Style("as written", PALETTE[1], dash="none", marker="s")
_WINNER = Style("winner", "#222222", dash="none", marker="D")
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


@styled
def _progress(results: TuneResults) -> Drawn:
    figure, [axes] = panel_grid(1, None)
    figure.draw_without_rendering()
    done = sorted(results.ranked(), key=lambda trial: trial.trial)
    y_axis = _objective_axis(results)
    _draw_trials(axes, results, {trial.trial: float(trial.trial) for trial in done})
    best = _best_so_far(done)
    axes.step(list(best), list(best.values()), where="post", color=_WINNER.colour, linewidth=1.1,
              label=own(_BEST))  # fmt: skip
    axes.set_xlabel("trial")
    y_axis.show(axes, "y")
    title = f"{results.objective.capitalize()} by trial"
    put_header(figure, title, [*_legend(results), Style(_BEST, _WINNER.colour, marker="")])
    caption = (
        "Each dot is a setting, in the order in which they were tried; the line is the best one"
        " that meets the conditions so far. Trial 0 is the scenario as written."
    )
    return Drawn(figure, slug_of("tune", "trials", results.objective), title, caption)


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


@styled
def _by_key(results: TuneResults) -> Drawn:
    keys = results.keys[:_MAX_KEYS]
    figure, grid = panel_grid(len(keys), None)
    figure.draw_without_rendering()
    y_axis = _objective_axis(results)
    for axes, key in zip(grid, keys, strict=True):
        axis = _key_axis(results, key)
        places = {trial.trial: axis.place(trial.settings[key]) for trial in results.ranked()}
        _draw_trials(axes, results, places)
        axis.show(axes, key_label(key, results.keys))
        y_axis.show(axes, "y")
    title = f"{results.objective.capitalize()} by each key"
    put_header(figure, title, _legend(results))
    caption = "Each dot is a setting; the other keys vary, too."
    if len(results.keys) > _MAX_KEYS:
        caption += f" {len(results.keys) - _MAX_KEYS} more keys are in results.csv."
    return Drawn(figure, slug_of("tune", "keys", results.objective), title, caption)


def _key_axis(results: TuneResults, key: str) -> KeyAxis:
    values = {same(trial.settings[key]): trial.settings[key] for trial in results.ranked()}
    listed = list(values.values())
    if all(value is None or is_number(value) for value in listed) and any(map(is_number, listed)):
        return KeyAxis.of_numbers(key, listed, None)
    return KeyAxis.of_names(key, sorted(listed, key=same))


@styled
def _against_ttft(results: TuneResults, scenario: Mapping[str, Any]) -> Drawn:
    metric = MetricName.of("p99_ttft_ms")
    figure, [axes] = panel_grid(1, None)
    figure.draw_without_rendering()
    found = {trial.trial: trial.interval(metric.name).mean for trial in results.ranked()}
    places = {number: value for number, value in found.items() if value is not None}
    _draw_trials(axes, results, places)
    limit = _limit(results, scenario, metric.name)
    shown = [*places.values(), *([] if limit is None else [limit])]
    MetricAxis.of_values([metric], shown, scale=None, label=None).show(axes, "x")
    _objective_axis(results).show(axes, "y")
    if limit is not None:
        draw_limit(axes, limit, "x")
    title = f"{results.objective.capitalize()} against {metric.label}"
    put_header(figure, title, _legend(results))
    caption = "Each dot is a setting."
    if limit is not None:
        caption += " The dashed red line is the limit of the SLO or of the constraints."
    return Drawn(figure, slug_of("tune", results.objective, metric.name), title, caption)


def _limit(results: TuneResults, scenario: Mapping[str, Any], name: str) -> float | None:
    """The limit of a constraint, or else of the scenario's SLO."""
    slo = scenario.get("slo")
    slo = slo if isinstance(slo, Mapping) else {}
    limits = {key.removesuffix("_ms"): value for key, value in slo.items() if key.endswith("_ms")}
    known = {key: value for key, value in limits.items() if is_number(value) and value > 0}
    percentile = slo.get("percentile", 99)
    held = slo_limits({"goodput_slos_ms": known, "slo_percentile": percentile})
    return results.limits.get(name, held.get(name))


def _draw_trials(axes: Axes, results: TuneResults, places: Mapping[int, float]) -> None:
    """A dot for each trial that has a place."""
    for style, trials in _kinds(results):
        shown = [trial for trial in trials if trial.trial in places]
        axes.plot([places[trial.trial] for trial in shown], list(map(_objective, shown)),
                  style.marker, color=style.colour, markersize=7, linestyle="none",
                  markeredgecolor="white", markeredgewidth=0.6, label=own(style.label),
                  zorder=3 if style in (_OWN, _WINNER) else 2)  # fmt: skip
    winner = results.winner
    if winner is not None and winner.trial in places:
        axes.plot([places[winner.trial]], [_objective(winner)], "o", markersize=15,
                  markerfacecolor="none", markeredgecolor=_WINNER.colour,
                  label=beside(_WINNER.label))  # fmt: skip


def _kinds(results: TuneResults) -> list[_Kind]:
    """Every trial with results in one kind; kinds without any are left out."""
    winner, written = results.winner, results.trials[OWN]
    rest = [trial for trial in results.ranked() if trial not in (winner, written)]
    is_apart = written.sought is not None and written is not winner
    kinds = [
        _Kind(_MEETS, [trial for trial in rest if trial.meets]),
        _Kind(_MISSES, [trial for trial in rest if not trial.meets]),
        _Kind(_OWN, [written] if is_apart else []),
        _Kind(_WINNER, [] if winner is None else [winner]),
    ]
    return [kind for kind in kinds if kind.trials]


def _legend(results: TuneResults) -> list[Style]:
    return [kind.style for kind in _kinds(results)]


def _objective(trial: TrialResult) -> float:
    return trial.interval(OBJECTIVE).mean or 0.0


def _objective_axis(results: TuneResults) -> MetricAxis:
    shown = [trial.interval(OBJECTIVE) for trial in results.ranked()]
    named = MetricName.of("request_goodput")
    label = f"{results.objective} ({results.unit})"
    return MetricAxis.of([named], shown, scale="linear", label=label, zero=Zero.IF_NEAR)
