"""The results of a search on disk: results.csv has a row for each trial, results.json has all."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sim.core.files import json_text, write_text
from sim.family.launch_command import LaunchCommand
from sim.sweep.tune_results import OBJECTIVE, OWN, TrialResult, TuneResults
from sim.tables.table import csv_table


def tune_json(
    results: TuneResults, launches: Sequence[LaunchCommand], scenario: Mapping[str, Any]
) -> str:
    """The text of results.json; equal results give equal text.

    Args:
        results: the results of the search.
        launches: the winner's launch commands: one, or with server pools one of each and perhaps
            one of their router; empty: there is no winner, or none is known.
        scenario: its keys and values with `--set` options applied.
    """
    winner, runner_up, own = results.winner, results.runner_up, results.trials[OWN]
    commands = [{**asdict(launch), "command": launch.command} for launch in launches]
    content = {
        "name": results.name,
        "objective": results.objective,
        "unit": results.unit,
        "method": results.method,
        "num_settings": results.num_settings,
        "min_slo_attainment": results.least_attainment,
        "constraints": dict(results.limits),
        "keys": results.keys,
        "seeds": results.seeds,
        "winner": None if winner is None else winner.trial,
        "runner_up": None if runner_up is None else runner_up.trial,
        "winner_minus_runner_up": _difference(results, runner_up),
        "winner_minus_own": _difference(results, own),
        "front": [trial.trial for trial in results.front()],
        "launch": commands[0] if commands else None,
        **({"launches": commands} if len(commands) > 1 else {}),
        "scenario": scenario,
        "trials": [_trial(results, trial) for trial in results.trials],
    }
    return json_text(content, indent=1)


def write_tune_results(results: TuneResults, text: str, folder: Path) -> None:
    """Write both files; results.json, with the text of `tune_json`, comes last.

    So if it exists, results.csv is complete.

    Raises:
        InputError: writing failed.
    """
    csv_table([_row(results, trial) for trial in results.trials]).write_csv(folder / "results.csv")
    write_text(folder / "results.json", text)


def _row(results: TuneResults, trial: TrialResult) -> dict[str, Any]:
    objective = trial.interval(OBJECTIVE)
    return {
        "trial": trial.trial,
        **{key: trial.settings.get(key) for key in results.keys},
        "status": trial.status,
        "meets": trial.meets,
        results.objective: objective.mean,
        f"{results.objective}_half_width": objective.half_width,
        **{name: trial.interval(name).mean for name in results.metrics},
        "error": trial.error,
    }


def _trial(results: TuneResults, trial: TrialResult) -> dict[str, Any]:
    def interval(name: str, values: tuple[float | None, ...]) -> dict[str, Any]:
        return {**asdict(trial.interval(name)), "by_seed": values}

    return {
        "trial": trial.trial,
        "settings": trial.settings,
        "status": trial.status,
        "meets": trial.meets,
        "sought": trial.sought,
        "shortfall": trial.shortfall,
        "objective": interval(OBJECTIVE, trial.objective),
        "metrics": {name: interval(name, trial.runs.get(name, ())) for name in results.metrics},
        "error": trial.error,
    }


def _difference(results: TuneResults, other: TrialResult | None) -> dict[str, Any] | None:
    found = None if other is None else results.difference(other)
    return None if found is None else asdict(found)
