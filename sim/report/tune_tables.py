"""What a search found, as tables and sentences."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from sim.launch_command import LaunchCommand
from sim.report.confidence import MIN_RUNS, MeanInterval
from sim.report.numbers import number
from sim.report.sweep_tables import interval_text, short_names, value_text
from sim.report.tune_results import METRICS, OWN, TrialResult, TuneResults

_MAX_FRONT = 10
_SHARE = "slo_attainment"


def best_table(results: TuneResults) -> Table:
    """The winner, the runner-up and the scenario's own setting side by side.

    Where nothing meets the SLO, the trial that comes nearest is shown instead of a winner.
    """
    ranked = results.ranked()
    named: dict[str, TrialResult | None] = {"winner": results.winner}
    if results.winner is None:
        named = {"nearest": ranked[0] if ranked else None}
    named |= {"runner-up": results.runner_up, "as written": results.trials[OWN]}
    shown = {name: trial for name, trial in named.items() if trial is not None}
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column()
    for name in shown:
        table.add_column(name, justify="right")
    table.add_row("trial", *(str(trial.trial) for trial in shown.values()))
    for key in results.keys:
        values = [value_text(trial.settings.get(key)) for trial in shown.values()]
        table.add_row(escape(key), *values)
    columns = [_metrics(trial) for trial in shown.values()]
    for label, *cells in zip(_labels(results), *columns, strict=True):
        table.add_row(label, *cells)
    return table


def front_table(results: TuneResults) -> Table:
    """The first trials of the front, the best objective first."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("trial", justify="right")
    for name in short_names(list(results.keys)).values():
        # A name that is cut off tells nothing.
        table.add_column(escape(name), overflow="fold")
    for label in _labels(results):
        table.add_column(label, justify="right")
    for trial in results.front()[:_MAX_FRONT]:
        settings = [value_text(trial.settings.get(key)) for key in results.keys]
        table.add_row(str(trial.trial), *settings, *_metrics(trial))
    return table


def front_in_words(results: TuneResults) -> str:
    others = (
        "SLO attainment and p99 TTFT"
        if results.objective == "cost"
        else ("p99 TTFT and output tokens/s")
    )
    rest = len(results.front()) - _MAX_FRONT
    more = f"; {rest} more in the results" if rest > 0 else ""
    return f"Not beaten on {results.objective}, {others} together{more}:"


def method_in_words(results: TuneResults) -> str:
    """How many settings were tried, of how many, and what for."""
    done = len(results.ranked())
    tried = f"{len(results.trials):,} trials"
    if done < len(results.trials):
        tried += f" ({done:,} with results)"
    runs = f"{len(results.seeds)} seed{'' if len(results.seeds) == 1 else 's'} each"
    how = "the whole grid" if results.method == "grid" else "a search"
    if results.method != "grid" and results.num_settings is not None:
        how += f" of {results.num_settings:,} settings"
    sought = f"most goodput, {results.unit}"
    if results.objective == "cost":
        sought = f"least cost, {results.unit}, with an SLO attainment of"
        sought += f" {_percent(results.least_attainment)} % or more"
    elif results.least_attainment is not None:
        sought += f", with an SLO attainment of {_percent(results.least_attainment)} % or more"
    return f"{results.name}: {sought}: {tried}, {runs}, {how}"


def verdicts(results: TuneResults) -> list[str]:
    """How sure it is, a sentence each."""
    winner, own = results.winner, results.trials[OWN]
    if winner is None:
        return [_no_winner(results)]
    lines = []
    if winner is own:
        lines.append("Nothing tried is better than the scenario as written.")
    elif own.meets:
        lines.append(_difference(results, own, "the scenario as written"))
    elif own.sought is not None:
        lines.append("The scenario as written does not meet the SLO as often as asked for.")
    if results.runner_up is not None and results.runner_up is not own:
        lines.append(_difference(results, results.runner_up, "the runner-up"))
    if results.least_attainment is not None:
        lines.append(_attainment(winner.interval(_SHARE), results.least_attainment))
    return lines


def launch_lines(launch: LaunchCommand) -> list[str]:
    """The command, bare, so that it can be pasted; then what it cannot say."""
    lines = [f"{launch.server}:", launch.command]
    if launch.apart:
        lines.append(f"without a flag in {launch.server.split()[0]}: {', '.join(launch.apart)}")
    return lines


def _labels(results: TuneResults) -> list[str]:
    return [f"{results.objective} {results.unit}", *METRICS]


def _metrics(trial: TrialResult) -> Sequence[str]:
    cells = [interval_text(trial.interval("objective"))]
    for metric in METRICS.values():
        interval = trial.interval(metric)
        cells.append(interval_text(_in_percent(interval) if metric == _SHARE else interval))
    return cells


def _difference(results: TuneResults, other: TrialResult, name: str) -> str:
    found = results.difference(other)
    if found is None or found.interval.mean is None:
        return f"No difference to {name} can be given."
    interval, unit = found.interval, results.unit
    if found.metric == _SHARE:
        interval, unit = _in_percent(interval), "points of SLO attainment at equal cost"
    elif results.objective == "cost":
        return f"Winner minus {name}: {number(interval.mean)} {unit}, whatever the seed."
    text = f"Winner minus {name}: {interval_text(interval)} {unit}, seed by seed: "
    if found.is_distinguishable is None:
        return f"{text}it takes {MIN_RUNS} seeds to say whether that is chance."
    return f"{text}{'distinguishable' if found.is_distinguishable else 'not distinguishable'}."


def _attainment(interval: MeanInterval, least: float) -> str:
    text = f"SLO attainment {interval_text(_in_percent(interval))} %, wanted {_percent(least)} %: "
    if interval.mean is None or interval.half_width is None:
        return f"{text}met on average; it takes {MIN_RUNS} seeds to say how surely."
    if interval.mean - interval.half_width >= least:
        return f"{text}met."
    return f"{text}met on average, but the interval reaches below."


def _no_winner(results: TuneResults) -> str:
    ranked = results.ranked()
    if not ranked:
        return "No trial has results."
    share = ranked[0].interval(_SHARE).mean
    return (
        f"No setting that was tried attains the SLO for {_percent(results.least_attainment)} % of"
        f" requests; trial {ranked[0].trial} comes nearest with {_percent(share)} %."
    )


def _in_percent(interval: MeanInterval) -> MeanInterval:
    mean, half = interval.mean, interval.half_width
    return MeanInterval(
        None if mean is None else 100 * mean, None if half is None else 100 * half, interval.count
    )


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.4g}"
