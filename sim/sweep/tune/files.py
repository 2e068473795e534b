"""The results of a search on disk: results.csv has a row for each trial, results.json has all."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import (
    Annotated,
    Any,
    NotRequired,  # pydantic needs it before Python 3.12
)

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from sim.confidence.confidence import INTERVALS
from sim.core.errors import InputError
from sim.core.files import json_text
from sim.core.packed import read_json_object
from sim.family.launch_command import LaunchCommand
from sim.metrics.summary_type import Confidence
from sim.scenario.search_sections import JudgedBy
from sim.sweep.result_files import RESULTS, launch_content
from sim.sweep.tune.results import OBJECTIVE, OWN, TrialResult, TuneResults, mean_of_known
from sim.validation import OPEN, Count, MetricNumber, check


def tune_json(
    results: TuneResults, launches: Sequence[LaunchCommand], scenario: Mapping[str, Any]
) -> str:
    """The text of results.json; equal results give equal text.

    The winner has one launch command, or with server pools one of each and perhaps one of their
    router; none if there is no winner, or if none is known.
    """
    winner, runner_up, own = results.winner, results.runner_up, results.trials[OWN]
    content = {
        "name": results.name,
        "objective": results.objective,
        "unit": results.unit,
        "method": results.method,
        "num_settings": results.num_settings,
        "min_slo_attainment": results.least_attainment,
        "judged_by": results.judged_by,
        "constraints": dict(results.limits),
        "keys": results.keys,
        "seeds": results.seeds,
        "winner": None if winner is None else winner.trial,
        "runner_up": None if runner_up is None else runner_up.trial,
        "winner_minus_runner_up": _difference(results, runner_up),
        "winner_minus_own": _difference(results, own),
        "front": [trial.trial for trial in results.front()],
        **launch_content(launches),
        "scenario": scenario,
        "trials": [_trial(results, trial) for trial in results.trials],
    }
    return json_text(content, indent=1)


def tune_rows(results: TuneResults) -> list[dict[str, Any]]:
    """The rows of results.csv, one for each trial; with intervals of the means that have any."""
    known = [name for name in INTERVALS if any(name in one.confidence for one in results.trials)]
    return [_row(results, trial, known) for trial in results.trials]


def _row(results: TuneResults, trial: TrialResult, known: Sequence[str]) -> dict[str, Any]:
    objective = trial.interval(OBJECTIVE)
    return {
        "trial": trial.trial,
        **{key: trial.settings.get(key) for key in results.keys},
        "status": trial.status,
        "meets": trial.meets,
        results.objective: objective.mean,
        f"{results.objective}_half_width": objective.half_width,
        **{name: trial.interval(name).mean for name in results.metrics},
        **{
            f"{name}_{end}": trial.confidence.get(name, {}).get(end)
            for name in known
            for end in ("low", "high")
        },
        "error": trial.error,
    }


def _trial(results: TuneResults, trial: TrialResult) -> dict[str, Any]:
    def interval(values: tuple[float | None, ...]) -> dict[str, Any]:
        return {**asdict(mean_of_known(values)), "by_seed": values}

    return {
        "trial": trial.trial,
        "settings": trial.settings,
        "status": trial.status,
        "meets": trial.meets,
        "sought": trial.sought,
        "shortfall": trial.shortfall,
        "objective": interval(trial.objective),
        "metrics": {name: interval(trial.runs.get(name, ())) for name in results.metrics},
        "judged": {name: interval(values) for name, values in trial.judged.items()},
        "confidence": trial.confidence,
        "error": trial.error,
    }


def _difference(results: TuneResults, other: TrialResult | None) -> dict[str, Any] | None:
    found = None if other is None else results.difference(other)
    return None if found is None else asdict(found)


REWRITE_HINT = "simulate tune with the same --out writes it anew"


class _Values(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    by_seed: list[MetricNumber | None]


class _Trial(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    trial: Count
    settings: dict[str, Any]
    status: str
    meets: bool | None
    sought: MetricNumber | None
    shortfall: MetricNumber | None
    objective: _Values
    metrics: dict[str, _Values]
    judged: NotRequired[dict[str, _Values]]
    confidence: NotRequired[Confidence]
    error: str | None


class _Tune(TypedDict):
    """What is read of results.json."""

    __pydantic_config__ = OPEN  # type: ignore[misc]

    name: str
    objective: Annotated[str, Field(pattern="^(goodput|cost)$")]
    unit: str
    method: str
    num_settings: int | None
    min_slo_attainment: MetricNumber | None
    judged_by: NotRequired[JudgedBy]
    constraints: dict[str, Annotated[float, Field(gt=0, le=1e18)]]
    keys: list[str]
    seeds: list[int]
    scenario: dict[str, Any]
    trials: Annotated[list[_Trial], Field(min_length=1)]


_TUNE_TYPE = TypeAdapter(_Tune)


def is_tune_folder(folder: Path) -> bool:
    """Whether the folder's results.json is that of a search."""
    return "trials" in read_json_object(folder / RESULTS)


def read_tune_results(folder: Path) -> tuple[TuneResults, dict[str, Any]]:
    """The trials of a finished search, and its scenario."""
    path = folder / RESULTS
    try:
        found = read_json_object(path)
        check(_TUNE_TYPE, found, str(path))
        trials = tuple(_read_trial(path, trial, found) for trial in found["trials"])
    except InputError as error:
        raise InputError(f"{error} ({REWRITE_HINT})") from None
    results = TuneResults(
        name=found["name"],
        objective=found["objective"],
        unit=found["unit"],
        method=found["method"],
        num_settings=found["num_settings"],
        least_attainment=found["min_slo_attainment"],
        keys=tuple(found["keys"]),
        seeds=tuple(found["seeds"]),
        trials=trials,
        limits=found["constraints"],
        metrics=tuple(found["trials"][0]["metrics"]),
        judged_by=found.get("judged_by", "simulated"),
    )
    return results, found["scenario"]


def _read_trial(path: Path, row: Mapping[str, Any], found: Mapping[str, Any]) -> TrialResult:
    where = f"{path}: trials.{row['trial']}"
    missing = [key for key in found["keys"] if key not in row["settings"]]
    if missing:
        raise InputError(f"{where}.settings: lacks {missing[0]}")
    names = list(found["trials"][0]["metrics"])
    if list(row["metrics"]) != names:
        raise InputError(f"{where}.metrics: must be {', '.join(names)}")
    objective = [value for value in row["objective"]["by_seed"] if value is not None]
    is_done = row["sought"] is not None
    num_runs = len(found["seeds"]) if is_done else 0
    judged = {name: each["by_seed"] for name, each in row.get("judged", {}).items()}
    values = [objective, *(row["metrics"][name]["by_seed"] for name in names), *judged.values()]
    if any(len(each) != num_runs for each in values):
        raise InputError(f"{where}: must have {num_runs} values of the objective and each metric")
    return TrialResult(
        trial=row["trial"],
        settings=row["settings"],
        status=row["status"],
        error=row["error"],
        objective=tuple(objective),
        sought=row["sought"],
        meets=row["meets"],
        shortfall=row["shortfall"],
        runs={name: tuple(row["metrics"][name]["by_seed"]) for name in names} if is_done else {},
        judged={name: tuple(each) for name, each in judged.items()},
        confidence=row.get("confidence", {}),
    )
