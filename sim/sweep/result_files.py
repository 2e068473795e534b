"""The results of a sweep or a search on disk, and the commands that launch what a search found."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from sim.core.arrays import Bools
from sim.core.errors import InputError
from sim.core.files import atomic_path, json_text, remove_file, write_text
from sim.core.packed import read_json_object
from sim.families import family_named
from sim.family import Family
from sim.family.launch_command import LaunchCommand, weight_flags
from sim.latency.config import AiconfiguratorLatencyConfig, parallelism
from sim.metrics.registry import MetricName
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Scenario
from sim.sweep.plan import SEED, Settings, canonical
from sim.sweep.results import PointResult, SweepResults
from sim.sweep.store import POINTS, read_point
from sim.tables.table import counted, table_of_rows
from sim.validation import OPEN, check
from sim.workers.executor import TaskStatus

if TYPE_CHECKING:
    import pyarrow as pa

RESULTS = "results.json"


class _Results(TypedDict):
    """What is read of results.json."""

    __pydantic_config__ = OPEN  # type: ignore[misc]

    name: str
    keys: list[str]
    scenario: dict[str, Any]
    points: list[dict[str, Any]]
    point_files: list[str]


_RESULTS_TYPE = TypeAdapter(_Results)
# Parquet's whole numbers have 64 bits.
_MOST_INT = (1 << 63) - 1
FRONT = "front.csv"
_NAMES = (RESULTS, FRONT, "results.csv", "results.parquet")
REWRITE_HINT = "simulate sweep with the same --out writes it anew"


def point_rows(results: SweepResults) -> list[dict[str, Any]]:
    """One mapping for each point in the plan's order, all with the same keys in the same order.

    These are `point` (from 1), the swept keys, `seed`, `status`, every metric that is one value,
    and `error`.
    """
    metrics = dict.fromkeys(
        metric
        for point in results.points
        for metric, value in (point.summary or {}).items()
        if value is None or isinstance(value, bool | int | float | str)
    )
    keys = dict.fromkeys((*results.keys, SEED))
    return [
        {
            "point": number,
            **{key: point.values.get(key) for key in keys},
            "status": point.status,
            **{metric: (point.summary or {}).get(metric) for metric in metrics},
            "error": point.message,
        }
        for number, point in enumerate(results.points, start=1)
    ]


def sweep_json(results: SweepResults) -> str:
    """The text of results.json; equal results give equal text."""
    settings = []
    for setting in results.design.settings:
        points = results.points_of(setting)
        settings.append({
            "settings": {key: setting[key] for key in results.design.keys},
            "num_points": len(points),
            "num_failed": sum(point.summary is None for point in points),
            "metrics": {
                name: asdict(results.interval(setting, MetricName.of(name)))
                for name in results.setting_metrics
            },
            "confidence": results.confidence(setting),
        })  # fmt: skip
    content = {
        "name": results.name,
        "keys": results.keys,
        "scenario": results.scenario,
        "settings": settings,
        "points": point_rows(results),
        "point_files": [point.file for point in results.points],
    }
    return json_text(content, indent=1)


def remove_results(folder: Path) -> None:
    """Remove the results of an earlier sweep, so that they are not taken for those of this one."""
    for name in _NAMES:
        remove_file(folder / name)


def write_results(results: SweepResults, folder: Path) -> None:
    """Write all three files; results.json comes last, so if it exists, the others are complete.

    If the values of a column have several types, or do not fit into 64 bits, results.parquet has
    them as JSON text.
    """
    rows = point_rows(results)
    with atomic_path(folder / "results.parquet") as beside:
        _write_parquet(rows, beside)
    table_of_rows(rows).write_csv(folder / "results.csv")
    write_text(folder / RESULTS, sweep_json(results))


def write_search_results(rows: Sequence[Mapping[str, Any]], text: str, folder: Path) -> None:
    """Write the results of a search; results.json is last: if it exists, both are complete."""
    table_of_rows(rows).write_csv(folder / "results.csv")
    write_text(folder / RESULTS, text)


# Keys that have flags of their own.
_PARALLEL = ("latency.tp", "latency.dp", "latency.pp", "latency.moe_ep")


def launches_of(loaded: LoadedScenario, searched: Settings) -> list[LaunchCommand]:
    """The commands that launch the servers of a scenario: of each pool, and of their router.

    `searched` is as for `launch_of`; the settings of a pool begin with `pools.NAME.`.
    """
    sections = loaded.scenario.pools or {}
    if not loaded.pools:
        launch = launch_of(loaded.scenario, searched)
        return [] if launch is None else [launch]
    launches: list[LaunchCommand] = []
    hosts: dict[str, list[str]] = {}
    routers: dict[str, str] = {}
    family = family_named(loaded.scenario.scheduler.family)
    for name, pool in loaded.pools.items():
        role, own, own_keys = sections[name].role, pool.scenario, f"pools.{name}."
        mine = {
            key.removeprefix(own_keys): value
            for key, value in searched.items()
            if not key.startswith("pools.") or key.startswith(own_keys)
        }
        mine.pop("replicas", None)
        launch = launch_of(own, mine)
        if launch is None:
            return []
        count = counted(own.replicas, "server")
        launch = family.in_role(launch, own.scheduler, role)
        launches.append(replace(launch, server=f"{launch.server}, pool {name}, {count}"))
        hosts.setdefault(role, []).extend(f"{name}-{number}" for number in range(own.replicas))
        routers[role] = own.router.kind
    router = family.router_command(hosts, routers)
    return launches if router is None else [*launches, router]


def launch_of(scenario: Scenario, searched: Settings) -> LaunchCommand | None:
    """The launch command of each replica; None: the family is the user's own, and has none.

    `searched` are the settings that a search varied. Those of the scheduler become flags even if
    they are the server's defaults; others have no flag, and are named, but for the parallelism,
    which has.
    """
    family = family_named(scenario.scheduler.family)
    if type(family).launch_command is Family.launch_command:
        return None
    parts = {key: key.partition(".") for key in searched}
    keys = [rest for top, _, rest in parts.values() if top == "scheduler"]
    launch = family.launch_command(scenario.scheduler, keys)
    latency = scenario.latency
    flags = (*launch.flags, *family.parallel_flags(parallelism(latency)))
    if isinstance(latency, AiconfiguratorLatencyConfig):
        flags += weight_flags(latency.quantization.model_dump())
    elsewhere = [
        f"{key}={canonical(searched[key])}"
        for key, (top, _, _) in parts.items()
        if top != "scheduler" and key not in _PARALLEL
    ]
    return replace(launch, flags=flags, without_flag=(*launch.without_flag, *elsewhere))


def launch_content(launches: Sequence[LaunchCommand]) -> dict[str, Any]:
    """Launch commands in results.json: the first, and all of them if they are several."""
    commands = [{**asdict(launch), "command": launch.command} for launch in launches]
    several = {"launches": commands} if len(commands) > 1 else {}
    return {"launch": commands[0] if commands else None, **several}


def read_results(folder: Path) -> SweepResults:
    """Read the results of a finished sweep, summaries of all points included."""
    path = folder / RESULTS
    try:
        results = read_json_object(path)
        check(_RESULTS_TYPE, results, str(path))
        if len(results["points"]) != len(results["point_files"]):
            raise InputError(f"{path}: point_files: must be as many as points")
    except InputError as error:
        raise InputError(f"{error} ({REWRITE_HINT})") from None
    points = [
        _point(folder, row, file, results["keys"])
        for row, file in zip(results["points"], results["point_files"], strict=True)
    ]
    return SweepResults.of(results["name"], results["scenario"], results["keys"], points)


def _point(folder: Path, row: Mapping[str, Any], file: str, keys: list[str]) -> PointResult:
    path = folder / POINTS / Path(file).name
    stored = read_point(path)
    if stored is None:
        what = "is damaged" if path.exists() else "is missing"
        raise InputError(f"{path}: {what} ({REWRITE_HINT})")
    values = {key: row.get(key) for key in (*keys, SEED)}
    summary = stored["summary"] if stored["status"] == TaskStatus.DONE else None
    return PointResult(values, file, stored["status"], summary, stored["message"])


def _write_parquet(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    # pyarrow takes long to load, and a sweep's workers do not need it.
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: _column([row[name] for row in rows]) for name in rows[0]}
    # pyarrow takes no path that is not UTF-8.
    with path.open("wb") as file:
        pq.write_table(pa.table(columns), file)


def _column(values: Sequence[Any]) -> "pa.Array":
    """A column of numbers, flags or texts; values of several types are JSON texts.

    It is made of its bytes, because `pyarrow.array` loads pandas, if that is installed.
    """
    import pyarrow as pa

    kinds: set[object] = {type(value) for value in values if value is not None}
    if any(isinstance(value, int) and abs(value) > _MOST_INT for value in values):
        kinds.add("too large")
    if kinds == {int, float}:
        kinds = {float}
    known = np.array([value is not None for value in values])
    present = None if known.all() else pa.py_buffer(_bits(known))
    if kinds in ({int}, {float}):
        is_int = kinds == {int}
        numbers = np.array(
            [value or 0 for value in values], dtype=np.int64 if is_int else np.float64
        )
        kind = pa.int64() if is_int else pa.float64()
        return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(numbers)])
    if kinds == {bool}:
        flags = pa.py_buffer(_bits(np.array([value is True for value in values])))
        return pa.Array.from_buffers(pa.bool_(), len(values), [present, flags])
    if kinds - {str}:
        values = [None if value is None else json.dumps(value) for value in values]
    texts = [(value or "").encode() for value in values]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    buffers = [present, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _bits(flags: Bools) -> NDArray[np.uint8]:
    return np.packbits(flags, bitorder="little")
