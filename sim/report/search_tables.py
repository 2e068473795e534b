"""What searches found, for settings and for deployments, as tables and sentences."""

from collections.abc import Iterator, Sequence

from sim.confidence.confidence import over_seeds
from sim.family.launch_command import LaunchCommand
from sim.metrics.metric_name import MetricName
from sim.metrics.points import MIN_RUNS, MeanInterval
from sim.metrics.registry import metric
from sim.report.confidence_text import confidence_lines
from sim.report.figures.key_text import short_names
from sim.report.sweep_tables import interval_text, share_text, value_json
from sim.sweep.capacity.candidates import Size, in_words
from sim.sweep.capacity.deployments import DeploymentVerdict, TriedDeployment, tried_keys
from sim.sweep.capacity.plan import CapacityPlan
from sim.sweep.capacity.search import shown_of
from sim.sweep.tune.results import (
    ATTAINMENT,
    FRONT_METRICS,
    OBJECTIVE,
    OWN,
    TrialResult,
    TuneResults,
)
from sim.tables.table import Table, columns_of
from sim.tables.text import UNDEFINED, counted, number

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
    return f"{results.name}: {sought}: {tried}, {runs}, {how}"


def verdicts(results: TuneResults) -> list[str]:
    """Sentences that compare the winner with other trials, and say how sure that is."""
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
        lines.append(attainment_in_words(winner.interval(ATTAINMENT), results.least_attainment))
    lines += [_limit_in_words(results, winner, name) for name in results.limits]
    return lines


def _limit_in_words(results: TuneResults, trial: TrialResult, name: str) -> str:
    """Whether a metric of the constraints is surely low enough."""
    interval, limit = trial.interval(name), results.limits[name]
    text = f"{_named(name)} {interval_text(interval)}, at most {number(limit)}: "
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
            f"{_named(name)} {interval_text(nearest.interval(name))} of {number(limit)}"
            for name, limit in results.limits.items()
        )
        return (
            "No setting that was tried meets every condition;"
            f" trial {nearest.trial} comes nearest: {words}."
        )
    share = ranked[0].interval(ATTAINMENT).mean
    return (
        f"No setting that was tried attains the SLO for {percent(results.least_attainment)} % of"
        f" requests; trial {ranked[0].trial} comes nearest with {percent(share)} %."
    )


def percent(share: float | None) -> str:
    """A share in percent, without needless digits."""
    return f"{100 * (share or 0.0):.4g}"


_MAX_LISTED = 20
_SHOWN_LATENCIES = ("p99_ttft_ms", "p99_tpot_ms")


def plan_in_words(plan: CapacityPlan) -> str:
    """The first line: what is sought, and among how many candidates."""
    rate = plan.section.rate_rps
    traffic = "" if rate is None else f" at {number(rate)} requests/s"
    return (
        f"{plan.plan.base.scenario.name}: the cheapest deployments that meet the SLO for"
        f" {percent(plan.section.min_slo_attainment)} % of requests{traffic}:"
        f" {len(plan.candidates):,} candidates, {counted(len(plan.seeds), 'seed')} each"
    )


def deployments_table(plan: CapacityPlan, shown: Sequence[TriedDeployment]) -> Table:
    """The cheapest deployments, the best first."""
    keys = tried_keys(plan)
    names = short_names(keys)
    degrees = [name for name in ("tp", "dp", "moe_ep") if _varies(plan, name)]
    is_priced = plan.candidates[0].price_per_hour is not None
    has_disaggregated = plan.section.disaggregated is not None
    per_gpu = ["goodput/s per GPU"] if has_disaggregated else []
    headings = [metric(name).table_heading_with_unit for name in (ATTAINMENT, *_SHOWN_LATENCIES)]
    columns = [
        *columns_of(["GPU"]),
        *columns_of(numbers=[*degrees, "replicas", "GPUs", *(["per hour"] if is_priced else [])]),
        *columns_of(["server"]),
        *columns_of(numbers=[*(names[key] for key in keys), "headroom %", *per_gpu, *headings]),
    ]
    rows = [
        [
            one.candidate.gpu,
            *(_of_both(one, name) for name in degrees),
            " + ".join(map(str, one.size or ())),
            str(one.num_gpus),
            *([number(one.cost)] if is_priced else []),
            one.candidate.family,
            *(value_json(one.candidate.tried[key]) if key in one.candidate.tried else UNDEFINED
              for key in keys),
            headroom_text(one),
            *([number(one.goodput_per_gpu)] if has_disaggregated else []),
            share_text(one.interval(ATTAINMENT)),
            *(interval_text(one.interval(name)) for name in _SHOWN_LATENCIES),
        ]
        for one in shown
    ]  # fmt: skip
    return Table(columns, rows)


def headroom_text(deployment: TriedDeployment) -> str:
    """How much more rate it bears, in percent."""
    if deployment.headroom is None:
        return UNDEFINED
    return f"{'≥ ' if deployment.is_headroom_open else ''}{percent(deployment.headroom)}"


def certainty_lines(plan: CapacityPlan, shown: Sequence[TriedDeployment]) -> list[str]:
    """How sure it is that the first one meets the SLO, and one replica fewer does not."""
    best, least = shown[0], plan.section.min_slo_attainment
    size = f"{_size_text(best, best.size)}, {_counted(best.num_gpus, 'GPU')}"
    lines = [f"The first ({size}): {attainment_in_words(best.interval(ATTAINMENT), least)}"]
    sure = next((one for one in shown if _is_sure(one, least)), best)
    if sure is not best:
        what = f"{in_words(sure.candidate)} ({_price(sure)})"
        lines.append(f"The cheapest whose interval does not: {what}.")
    for fewer, judged in best.fewer:
        share = share_text(judged.interval(ATTAINMENT))
        what = "One replica fewer"
        if best.candidate.decoders is not None:
            what = _size_text(best, fewer)
        lines.append(f"{what}: SLO attainment {share} %.")
    lines += _disaggregated_lines(plan, shown)
    if best.judged is not None:
        lines += confidence_lines(over_seeds(best.judged.by_seed("confidence")))
    left = [] if best.judged is None else [one for one in best.judged.by_seed("left_range") if one]
    if left:
        lines.append(f"Warning: {left[0]}")
    return lines


def _size_text(one: TriedDeployment, size: Size | None) -> str:
    if one.candidate.decoders is None or size is None:
        return _counted(one.replicas, "replica")
    return f"{_counted(size[0], 'prefill server')} and {_counted(size[1], 'decode server')}"


def _of_both(one: TriedDeployment, name: str) -> str:
    """A degree: of each replica, or of the prefill and the decode servers."""
    both = [one.candidate.degrees]
    if one.candidate.decoders is not None:
        both.append(one.candidate.decoders.degrees)
    return " + ".join(str(degrees.get(name, 1)) for degrees in both)


def _disaggregated_lines(plan: CapacityPlan, shown: Sequence[TriedDeployment]) -> Iterator[str]:
    """One line that compares the cheapest deployments with and without disaggregated servers."""
    if plan.section.disaggregated is None:
        return
    together = next((one for one in shown if one.candidate.decoders is None), None)
    split = next((one for one in shown if one.candidate.decoders is not None), None)
    if together is None or split is None or not together.cost or split.cost is None:
        which = "disaggregated servers" if together is None else "servers that do both"
        yield f"Only {which} meet the SLO."
        return
    change = 100 * (split.cost / together.cost - 1)
    words = "as much"
    if change:
        words = f"{number(abs(change))} % {'more' if change > 0 else 'less'}"
    ours, theirs = _price(split), _price(together)
    yield f"Disaggregated servers cost {words}: {ours}, against {theirs} together."


def _is_sure(one: TriedDeployment, least: float) -> bool:
    interval = one.interval(ATTAINMENT)
    return interval.half_width is not None and interval.ends[0] >= least


def other_lines(plan: CapacityPlan, deployments: Sequence[TriedDeployment]) -> Iterator[str]:
    """The candidates that are not in the table, grouped by what was found out about them."""
    headings = {
        DeploymentVerdict.DEARER: "cost more than those above",
        DeploymentVerdict.MISSES: "miss the SLO with any number of replicas",
        DeploymentVerdict.CANNOT_RUN: "cannot run",
        DeploymentVerdict.FAILED: "failed",
    }
    meeting = [one for one in deployments if one.verdict is DeploymentVerdict.MEETS]
    shown = shown_of(plan, meeting)
    dearer = [one for one in meeting if one not in shown]
    for verdict, heading in headings.items():
        group = [one for one in deployments if one.verdict is verdict]
        group = [*dearer, *group] if verdict is DeploymentVerdict.DEARER else group
        if not group:
            continue
        yield f"{len(group):,} {heading}:"
        for one in group[:_MAX_LISTED]:
            yield f"  {in_words(one.candidate)}: {_found(one)}"
        if len(group) > _MAX_LISTED:
            yield f"  {len(group) - _MAX_LISTED:,} more in results.csv"


def _found(one: TriedDeployment) -> str:
    match one.verdict:
        case DeploymentVerdict.MEETS:
            return _price(one)
        case DeploymentVerdict.DEARER:
            return f"{_price(one)} or more"
        case DeploymentVerdict.MISSES:
            if one.judged is None:
                return f"takes at least {_size_text(one, one.size)}"
            if one.judged.num_rejected:
                return f"rejects {_counted(one.judged.num_rejected, 'request')}"
            share = share_text(one.interval(ATTAINMENT))
            return f"{share} % with {_size_text(one, one.size)}"
        case _:
            return one.reason or ""


def _price(one: TriedDeployment) -> str:
    gpus = _counted(one.num_gpus, "GPU")
    return gpus if one.candidate.price_per_hour is None else f"{number(one.cost)} per hour, {gpus}"


def _counted(count: int | None, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _varies(plan: CapacityPlan, name: str) -> bool:
    """Whether any candidate has another degree than 1."""
    return any(one.degrees.get(name, 1) != 1 for one in plan.candidates)
