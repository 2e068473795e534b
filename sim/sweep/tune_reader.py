"""Reads the results of a search from its folder, for its report."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from sim.core.errors import InputError
from sim.core.json_object import read_json_object
from sim.sweep.result_files import RESULTS
from sim.sweep.tune_results import TrialResult, TuneResults
from sim.validation.strict_model import OPEN, Count, check

REWRITE_HINT = "simulate tune with the same --out writes it anew"
_Number = Annotated[float, Field(ge=-1e18, le=1e18)]


class _Values(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    by_seed: list[_Number | None]


class _Trial(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    trial: Count
    settings: dict[str, Any]
    status: str
    meets: bool | None
    sought: _Number | None
    shortfall: _Number | None
    objective: _Values
    metrics: dict[str, _Values]
    error: str | None


class _Tune(TypedDict):
    """What is read of results.json."""

    __pydantic_config__ = OPEN  # type: ignore[misc]

    name: str
    objective: Annotated[str, Field(pattern="^(goodput|cost)$")]
    unit: str
    method: str
    num_settings: int | None
    min_slo_attainment: _Number | None
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
    """The trials of a finished search, and its scenario.

    Raises:
        InputError: results.json is damaged, or of an older version.
    """
    path = folder / RESULTS
    try:
        found = read_json_object(path)
        check(_TUNE_TYPE, found, str(path))
        trials = tuple(_trial(path, trial, found) for trial in found["trials"])
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
    )
    return results, found["scenario"]


def _trial(path: Path, row: Mapping[str, Any], found: Mapping[str, Any]) -> TrialResult:
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
    values = [objective, *(row["metrics"][name]["by_seed"] for name in names)]
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
    )
