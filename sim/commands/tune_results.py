"""From the trials of a search to what is reported of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sim.families import FAMILIES
from sim.launch_command import LaunchCommand
from sim.report.tune_results import METRICS, TrialResult, TuneResults
from sim.sweep.plan import canonical
from sim.sweep.tune import Trial
from sim.sweep.tune_plan import TunePlan

# The section whose keys a server may have flags for.
_OURS = "scheduler"


def results_of(plan: TunePlan, trials: Sequence[Trial]) -> TuneResults:
    section, keys = plan.section, tuple(plan.space.axes)
    unit = "requests/s"
    if section.objective == "cost":
        unit = "replicas" if section.price_per_hour is None else "per hour"
    return TuneResults(
        name=plan.plan.base.scenario.name,
        objective=section.objective,
        unit=unit,
        method="grid" if plan.is_grid else "search",
        num_settings=plan.space.num_settings,
        least_attainment=section.min_slo_attainment,
        keys=keys,
        seeds=plan.seeds,
        trials=tuple(_result(plan, trial) for trial in trials),
    )


def _result(plan: TunePlan, trial: Trial) -> TrialResult:
    settings = dict(plan.own) | dict(trial.settings)
    score = trial.score
    if score is None:
        status = "failed" if trial.outcomes else "contradiction"
        return TrialResult(
            trial=trial.number, settings=settings, status=status, error=error_of(trial), runs={}
        )
    summaries: list[dict[str, Any]] = [outcome.summary or {} for outcome in trial.outcomes]
    runs = {metric: tuple(summary[metric] for summary in summaries) for metric in METRICS.values()}
    return TrialResult(
        trial=trial.number,
        settings=settings,
        status="done",
        error=None,
        objective=score.objective,
        sought=score.sought,
        meets=score.meets,
        runs=runs,
    )


def error_of(trial: Trial) -> str | None:
    messages = (outcome.message for outcome in trial.outcomes if outcome.message is not None)
    return trial.message or next(messages, None)


def launch_of(
    plan: TunePlan, trials: Sequence[Trial], results: TuneResults
) -> LaunchCommand | None:
    """How the winner is launched; what is not the scheduler's has no flag."""
    if results.winner is None:
        return None
    settings = trials[results.winner.trial].settings
    scheduler = plan.plan.vary(settings).scenario.scheduler
    parts = {key: key.partition(".") for key in plan.space.axes}
    searched = [rest for top, _, rest in parts.values() if top == _OURS]
    launch = FAMILIES[scheduler.family].launch_command(scheduler, searched)
    elsewhere = [
        f"{key}={canonical(results.winner.settings[key])}"
        for key, (top, _, _) in parts.items()
        if top != _OURS
    ]
    return replace(launch, apart=(*launch.apart, *elsewhere))
