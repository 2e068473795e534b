"""What a sweep found: one row a point, and settings with their seeds folded."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
        keys: the swept key paths, `seed` last where seeds are swept.
        rows: one mapping a point in the plan's order, all with the same keys in the same order:
            `point` (from 1), the swept keys, `seed`, `status`, every scalar metric, `error`.
    """

    name: str
    keys: tuple[str, ...]
    rows: tuple[Row, ...]

    def settings(self) -> list[SettingResult]:
        """In the order of their first points."""
        keys = [key for key in self.keys if key != SEED]
        groups: dict[str, list[Row]] = {}
        for row in self.rows:
            name = json.dumps([row[key] for key in keys], sort_keys=True)
            groups.setdefault(name, []).append(row)
        return [_folded(keys, rows) for rows in groups.values()]


def sweep_results(
    name: str, keys: tuple[str, ...], points: Sequence[tuple[Row, Row | None, str, str | None]]
) -> SweepResults:
    """Put points into rows.

    Args:
        name: of the scenario.
        keys: the swept key paths.
        points: of each point, in the plan's order: its values by key path and its `seed`; its
            summary, None if it failed; its status; what went wrong.
    """
    metrics = list(
        dict.fromkeys(
            metric
            for _, summary, _, _ in points
            for metric, value in (summary or {}).items()
            if value is None or isinstance(value, bool | int | float | str)
        )
    )
    columns = dict.fromkeys((*keys, SEED))
    rows = [
        {
            "point": number,
            **{key: values.get(key) for key in columns},
            STATUS: status,
            **{metric: (summary or {}).get(metric) for metric in metrics},
            ERROR: error,
        }
        for number, (values, summary, status, error) in enumerate(points, start=1)
    ]
    return SweepResults(name, keys, tuple(rows))


def _folded(keys: Sequence[str], rows: Sequence[Row]) -> SettingResult:
    done = [row for row in rows if row[STATUS] == DONE]
    metrics = {
        metric: mean_interval([row[metric] for row in done if row[metric] is not None])
        for metric in METRICS.values()
    }
    settings = {key: rows[0][key] for key in keys}
    return SettingResult(settings, len(rows), len(rows) - len(done), metrics)
