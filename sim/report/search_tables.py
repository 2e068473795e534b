"""What searches found, for settings and for deployments, as tables and sentences."""

from sim.confidence.judged import ATTAINMENT
from sim.family.launch_command import LaunchCommand
from sim.metrics.points import MIN_RUNS, MeanInterval
from sim.metrics.registry import MetricName, metric
from sim.report.confidence_text import confidence_lines, interval_rows
from sim.report.figures.key_text import short_names
from sim.report.sweep_tables import interval_text, share_text, value_json
from sim.scenario.search_sections import JudgedBy
from sim.sweep.tune.results import (
    FRONT_METRICS,
    OBJECTIVE,
    OWN,
    TrialResult,
    TuneResults,
)
from sim.tables.table import Table, columns_of, counted, number

_MAX_FRONT = 10


def best_table(results: TuneResults) -> Table:
    """The winner, the runner-up and the scenario's own setting side by side.

    If no trial meets the SLO, the one that comes nearest takes the winner's place.
    """
    ranked = results.ranked()
    named: dict[str, TrialResult | None] = {"winner": results.winner}
    if results.winner is None:
        named = {"nearest": ranked[0] if ranked else None}
    named |= {"runner-up": results.runner_up, "as written": results.trials[OWN]}
    shown = {name: trial for name, trial in named.items() if trial is not None}
    trials = shown.values()
    rows = [
        ["trial", *(str(trial.trial) for trial in trials)],
        *([key, *(value_json(trial.settings.get(key)) for trial in trials)]
          for key in results.keys),
        *([label, *cells] for label, *cells in
          zip(_labels(results), *(_metrics(results, trial) for trial in trials), strict=True)),
        *interval_rows([trial.confidence for trial in trials]),
    ]  # fmt: skip
    return Table(columns_of([""], shown), rows)


def front_table(results: TuneResults) -> Table:
    """The first trials of the Pareto front, the best objective first."""
    columns = [
        *columns_of(numbers=["trial"]),
        *columns_of(short_names(results.keys).values(), _labels(results)),
    ]
    rows = [
        [str(trial.trial), *(value_json(trial.settings.get(key)) for key in results.keys),
         *_metrics(results, trial)]
        for trial in results.front()[:_MAX_FRONT]
    ]  # fmt: skip
    return Table(columns, rows)


def front_in_words(results: TuneResults) -> str:
    """The line above the front's table."""
    known = (metric(name) for name in FRONT_METRICS[results.objective])
    names = [m.table_heading_with_unit if m.unit.endswith("/s") else m.label for m in known]
    rest = len(results.front()) - _MAX_FRONT
    more = f"; {rest} more in the results" if rest > 0 else ""
    return f"Not beaten on {results.objective}, {' and '.join(names)} together{more}:"


def confidence_of_best(results: TuneResults) -> list[str]:
    """How far to believe the trial in the first column of `best_table`."""
    ranked = results.ranked()
    return confidence_lines(ranked[0].confidence) if ranked else []


def method_in_words(results: TuneResults) -> str:
    """One line: the objective, how many settings were tried, and how many there are."""
    done = len(results.ranked())
    tried = f"{len(results.trials):,} trials"
    if done < len(results.trials):
        tried += f" ({done:,} with results)"
    runs = f"{counted(len(results.seeds), 'seed')} each"
    how = "the whole grid" if results.method == "grid" else "a search"
    if results.method != "grid" and results.num_settings is not None:
        how += f" of {results.num_settings:,} settings"
    sought = f"most goodput, {results.unit}"
    if results.objective == "cost":
        sought = f"least cost, {results.unit}"
    if results.least_attainment is not None:
        sought += f", with an SLO attainment of {percent(results.least_attainment)} % or more"
    if results.limits:
        limits = (f"{_named(name)} up to {number(most)}" for name, most in results.limits.items())
        sought += (
            f"{' and' if results.least_attainment is not None else ', with'} {', '.join(limits)}"
        )
    if any(trial.judged for trial in results.trials):
        sought += f", judged {_JUDGED_BY[results.judged_by]}"
    return f"{results.name}: {sought}: {tried}, {runs}, {how}"


_JUDGED_BY = {
    "expected": "with the latencies expected of such servers",
    "upper_end": "at the upper ends of their 90 % intervals",
}


def verdicts(results: TuneResults) -> list[str]:
    """Sentences that compare the winner with other trials, and say how sure that is."""
    winner, own = results.winner, results.trials[OWN]
    if winner is None:
        return [_no_winner(results), *_judged_lines(results)]
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
        lines.append(attainment_in_words(winner.interval(ATTAINMENT), results.least_attainment))
    lines += [_limit_in_words(results, winner, name) for name in results.limits]
    return lines + _judged_lines(results)


def _judged_lines(results: TuneResults) -> list[str]:
    best = next(iter(results.ranked()), None)
    if best is None or (best.judged and ATTAINMENT not in best.judged):
        return []
    is_met = results.winner is not None and results.least_attainment is not None
    share = best.judged_interval(ATTAINMENT).mean if ATTAINMENT in best.judged else None
    return judged_lines(results.judged_by, share, is_met=is_met)


def judged_lines(judged_by: JudgedBy, share: float | None, *, is_met: bool) -> list[str]:
    """With which latencies the best one was judged, if not with those simulated.

    `share` is its SLO attainment with them, if that is not the simulated one; `is_met` says whether
    this is as much as was asked for.
    """
    if share is None:
        reason = "Judged as simulated: it has no interval of the SLO attainment."
        return [reason] if judged_by == "upper_end" else []
    found = f"the SLO attainment is {percent(share)} %."
    if judged_by == "upper_end":
        who = "Nine of ten such servers meet it: at" if is_met else "At"
        return [f"{who} the upper ends of their intervals, {found}"]
    return [f"With the latencies expected of such servers, {found}"]


def _limit_in_words(results: TuneResults, trial: TrialResult, name: str) -> str:
    """Whether a metric of the constraints is surely low enough."""
    interval, limit = trial.judged_interval(name), results.limits[name]
    how = f" {_JUDGED_BY[results.judged_by]}" if name in trial.judged else ""
    text = f"{_named(name)} {interval_text(interval)}{how}, at most {number(limit)}: "
    if interval.mean is None or interval.mean > limit:
        return f"{text}missed."
    if interval.half_width is None:
        return f"{text}met on average; it takes {MIN_RUNS} seeds to say how surely."
    if interval.mean + interval.half_width <= limit:
        return f"{text}met."
    return f"{text}met on average, but the interval reaches above."


def _named(name: str) -> str:
    return MetricName.of(name).long_label_with_unit


def launch_lines(launch: LaunchCommand) -> list[str]:
    """The command on a line of its own, ready to paste; then the settings that have no flag."""
    lines = [f"{launch.server}:", launch.command]
    if launch.without_flag:
        lines.append(
            f"without a flag in {launch.server.split()[0]}: {', '.join(launch.without_flag)}"
        )
    return lines


def attainment_in_words(interval: MeanInterval, least: float) -> str:
    """Whether the SLO attainment, a share, is surely high enough."""
    text = f"SLO attainment {share_text(interval)} %, wanted {percent(least)} %: "
    if interval.mean is not None and interval.mean < least:
        return f"{text}missed as simulated."
    if interval.mean is None or interval.half_width is None:
        return f"{text}met on average; it takes {MIN_RUNS} seeds to say how surely."
    if interval.mean - interval.half_width >= least:
        return f"{text}met."
    return f"{text}met on average, but the interval reaches below."


def _labels(results: TuneResults) -> list[str]:
    headings = (metric(name).table_heading_with_unit for name in results.metrics)
    return [f"{results.objective} {results.unit}", *headings]


def _metrics(results: TuneResults, trial: TrialResult) -> list[str]:
    """A trial's cells, in the order of `_labels`."""
    intervals = (trial.interval(name).scaled(metric(name).table_factor) for name in results.metrics)
    return [interval_text(trial.interval(OBJECTIVE)), *map(interval_text, intervals)]


def _difference(results: TuneResults, other: TrialResult, name: str) -> str:
    found = results.difference(other)
    if found is None or found.interval.mean is None:
        return f"No difference to {name} can be given."
    interval, unit = found.interval, results.unit
    if found.metric == ATTAINMENT:
        interval, unit = interval.scaled(100), "points of SLO attainment at equal cost"
    elif results.objective == "cost":
        return f"Winner minus {name}: {number(interval.mean)} {unit}, the same for every seed."
    text = f"Winner minus {name}: {interval_text(interval)} {unit}, seed by seed: "
    if found.is_distinguishable is None:
        return f"{text}it takes {MIN_RUNS} seeds to say whether that is chance."
    return f"{text}{'distinguishable' if found.is_distinguishable else 'not distinguishable'}."


def _no_winner(results: TuneResults) -> str:
    ranked = results.ranked()
    if not ranked:
        return "No trial has results."
    if results.limits:
        nearest = ranked[0]
        words = ", ".join(
            f"{_named(name)} {interval_text(nearest.judged_interval(name))} of {number(limit)}"
            for name, limit in results.limits.items()
        )
        return (
            "No setting that was tried meets every condition;"
            f" trial {nearest.trial} comes nearest: {words}."
        )
    share = ranked[0].judged_interval(ATTAINMENT).mean
    return (
        f"No setting that was tried attains the SLO for {percent(results.least_attainment)} % of"
        f" requests; trial {ranked[0].trial} comes nearest with {percent(share)} %."
    )


def percent(share: float | None) -> str:
    """A share in percent, without needless digits."""
    return f"{100 * (share or 0.0):.4g}"
