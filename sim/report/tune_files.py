"""The results of a search on disk: results.csv, a row a trial, and results.json, everything."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sim.core.atomic import atomic_path
from sim.launch_command import LaunchCommand
from sim.report.confidence import MeanInterval
from sim.report.sweep_files import write_csv
from sim.report.tune_results import METRICS, Difference, TrialResult, TuneResults


def tune_json(results: TuneResults, launch: LaunchCommand | None) -> str:
    """Equal results give equal text.

    Args:
        results: what was found.
        launch: of the winner; None: there is none.
    """
    winner, runner_up, own = results.winner, results.runner_up, results.trials[0]
    content = {
        "name": results.name,
        "objective": results.objective,
        "unit": results.unit,
        "method": results.method,
        "num_settings": results.num_settings,
        "min_slo_attainment": results.least_attainment,
        "keys": results.keys,
        "seeds": results.seeds,
        "winner": _number(winner),
        "runner_up": _number(runner_up),
        "winner_minus_runner_up": _difference(results, runner_up),
        "winner_minus_own": _difference(results, own),
        "front": [trial.trial for trial in results.front()],
        "launch": None if launch is None else {**asdict(launch), "command": launch.command},
        "trials": [_trial(trial) for trial in results.trials],
    }
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def write_tune_results(results: TuneResults, launch: LaunchCommand | None, folder: Path) -> None:
    """Write both; results.json comes last: where it is, the other one is whole.

    Raises:
        InputError: writing failed.
    """
    with atomic_path(folder / "results.csv") as beside:
        write_csv([_row(results, trial) for trial in results.trials], beside)
    with atomic_path(folder / "results.json") as beside:
        beside.write_text(tune_json(results, launch), encoding="utf-8")


def _row(results: TuneResults, trial: TrialResult) -> dict[str, Any]:
    objective = trial.interval("objective")
    return {
        "trial": trial.trial,
        **{key: trial.settings.get(key) for key in results.keys},
        "status": trial.status,
        "meets": trial.meets,
        results.objective: objective.mean,
        f"{results.objective}_half_width": objective.half_width,
        **{metric: trial.interval(metric).mean for metric in METRICS.values()},
        "error": trial.error,
    }


def _trial(trial: TrialResult) -> dict[str, Any]:
    metrics = {metric: trial.interval(metric) for metric in METRICS.values()}
    return {
        "trial": trial.trial,
        "settings": trial.settings,
        "status": trial.status,
        "meets": trial.meets,
        "objective": _interval(trial.interval("objective"), trial.objective),
        "metrics": {
            name: _interval(found, trial.runs.get(name)) for name, found in metrics.items()
        },
        "error": trial.error,
    }


def _interval(interval: MeanInterval, values: tuple[float | None, ...] | None) -> dict[str, Any]:
    return {**asdict(interval), "by_seed": values or ()}


def _difference(results: TuneResults, other: TrialResult | None) -> dict[str, Any] | None:
    found: Difference | None = None if other is None else results.difference(other)
    return None if found is None else asdict(found)


def _number(trial: TrialResult | None) -> int | None:
    return None if trial is None else trial.trial
