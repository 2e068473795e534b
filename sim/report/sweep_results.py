"""What a sweep found: one row a point, and settings with their seeds folded."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sim.report.confidence import MeanInterval, mean_interval

SEED = "seed"
STATUS = "status"
ERROR = "error"
DONE = "done"
# What a setting is judged by: label, summary name.
METRICS: Mapping[str, str] = {
    "TTFT mean ms": "mean_ttft_ms",
    "TTFT p99 ms": "p99_ttft_ms",
    "TPOT mean ms": "mean_tpot_ms",
    "output tokens/s": "output_throughput",
    "hit rate %": "cache_hit_rate_pct",
}

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SettingResult:
    """The runs of one setting, whatever their seeds.

    Attributes:
        settings: values by key path, the seed left out.
        num_points: how many runs it has.
        num_failed: those without results.
        metrics: of the other ones, by summary name.
    """

    settings: Mapping[str, Any]
    num_points: int
    num_failed: int
    metrics: Mapping[str, MeanInterval]


@dataclass(frozen=True, slots=True)
class SweepResults:
    """All points of a sweep.

    Attributes:
        name: of the scenario.
        scenario: what it says, options applied, its `sweep` and `report` included.
        keys: the swept key paths, `seed` last where seeds are swept.
        files: of each point, the name of the file that holds all of it; equal points share one.
        rows: one mapping a point in the plan's order, all with the same keys in the same order:
            `point` (from 1), the swept keys, `seed`, `status`, every scalar metric, `error`.
    """

    name: str
    scenario: Mapping[str, Any]
    keys: tuple[str, ...]
    files: tuple[str, ...]
    rows: tuple[Row, ...]

    def settings(self) -> list[SettingResult]:
        """In the order of their first points."""
        keys = [key for key in self.keys if key != SEED]
        groups: dict[str, list[Row]] = {}
        for row in self.rows:
            name = json.dumps([row[key] for key in keys], sort_keys=True)
            groups.setdefault(name, []).append(row)
        return [_folded(keys, rows) for rows in groups.values()]


class PointResult(NamedTuple):
    """What became of one point.

    Attributes:
        values: by key path, and its `seed`.
        file: the name of the file that holds all of it.
        status: how it ended.
        summary: None if it failed.
        message: what went wrong.
    """

    values: Row
    file: str
    status: str
    summary: Row | None = None
    message: str | None = None


def sweep_results(
    name: str, keys: tuple[str, ...], points: Sequence[PointResult], scenario: Mapping[str, Any]
) -> SweepResults:
    """Put points, in the plan's order, into rows.

    Args:
        name: of the scenario.
        keys: the swept key paths.
        points: what became of each.
        scenario: what it says.
    """
    metrics = list(
        dict.fromkeys(
            metric
            for point in points
            for metric, value in (point.summary or {}).items()
            if value is None or isinstance(value, bool | int | float | str)
        )
    )
    columns = dict.fromkeys((*keys, SEED))
    rows = [
        {
            "point": number,
            **{key: point.values.get(key) for key in columns},
            STATUS: point.status,
            **{metric: (point.summary or {}).get(metric) for metric in metrics},
            ERROR: point.message,
        }
        for number, point in enumerate(points, start=1)
    ]
    files = tuple(point.file for point in points)
    return SweepResults(name, scenario, keys, files, tuple(rows))


def _folded(keys: Sequence[str], rows: Sequence[Row]) -> SettingResult:
    done = [row for row in rows if row[STATUS] == DONE]
    metrics = {
        metric: mean_interval([row[metric] for row in done if row[metric] is not None])
        for metric in METRICS.values()
    }
    settings = {key: rows[0][key] for key in keys}
    return SettingResult(settings, len(rows), len(rows) - len(done), metrics)
