"""The settings of a sweep, the outcome of every point, and means over the seeds of a setting."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sim.confidence.confidence import over_seeds
from sim.core.arrays import Float64
from sim.metrics.latencies import slo_limits
from sim.metrics.points import MIN_RUNS, MeanInterval, mean_interval
from sim.metrics.registry import TENANTS, MetricName, group_of
from sim.metrics.summary import Summary
from sim.sweep.plan import SEED, Plan
from sim.sweep.store import PointOutcome, point_file

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Design:
    """The settings of a sweep, seeds left out.

    `keys` are the swept key paths without `seed`. Settings are values by key path, every one
    different, in the sweep's order.
    """

    keys: tuple[str, ...]
    settings: tuple[Settings, ...]

    @staticmethod
    def of(keys: Sequence[str], settings: Sequence[Settings]) -> "Design":
        """The design of settings among which some may be equal."""
        found = {same([setting[key] for key in keys]): setting for setting in reversed(settings)}
        return Design(tuple(keys), tuple(reversed(found.values())))

    def values(self, key: str) -> list[Any]:
        """The different values of a key, in the sweep's order."""
        return list({same(setting[key]): setting[key] for setting in self.settings}.values())

    def where(self, wanted: Settings) -> "Design":
        """Only the settings that have these values; a list allows any of its values."""
        allowed = {key: _choices(values) for key, values in wanted.items()}
        settings = [
            setting
            for setting in self.settings
            if all(same(setting[key]) in values for key, values in allowed.items())
        ]
        return Design(self.keys, tuple(settings))

    def divided(self, keys: Sequence[str]) -> "list[tuple[Settings, Design]]":
        """Groups of settings that agree in these keys: pairs of the keys' values and the group.

        Groups are in the order of their first settings.
        """
        parts: dict[str, list[Settings]] = {}
        for setting in self.settings:
            parts.setdefault(same([setting[key] for key in keys]), []).append(setting)
        return [
            ({key: part[0][key] for key in keys}, Design(self.keys, tuple(part)))
            for part in parts.values()
        ]

    def undecided(self, named: Sequence[str]) -> tuple[str, ...]:
        """Keys that still have several values when each named key has one value.

        Only these need panels. Example: if every policy has its own chunk size, a plot that names
        the policy needs no panels for chunk sizes.
        """
        known = list(named)
        for key in self.keys:
            if any(len(part.values(key)) > 1 for _, part in self.divided(known)):
                known.append(key)
        return tuple(known[len(named) :])

    def panels(self, named: Sequence[str]) -> "list[tuple[Settings, Design]]":
        """A panel for each combination of values of the keys that a plot does not name."""
        return self.divided(self.undecided(named))


def same(value: Any) -> str:
    """Text that is the same for equal values. 1 and 1.0 are equal here, 1 and true are not."""
    return json.dumps(_whole(value), sort_keys=True)


def _choices(values: Any) -> set[str]:
    return {same(value) for value in (values if isinstance(values, list | tuple) else [values])}


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    return value


# The metrics of every setting in results.json and in tables.
SETTING_METRICS = (
    "mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "output_throughput", "cache_hit_rate_pct",
)  # fmt: skip


class PointResult(NamedTuple):
    """The outcome of one point: the swept values by key path and the `seed`, and a `TaskStatus`.

    `file` is the name of the file with the whole outcome.
    """

    values: Mapping[str, Any]
    file: str
    status: str
    summary: Summary | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class SweepResults:
    """All points of a sweep, in the plan's order; `seed` is the last of the keys, if it is swept.

    `scenario` has `--set` options applied, and the sections `sweep` and `report`.
    """

    name: str
    scenario: Mapping[str, Any]
    keys: tuple[str, ...]
    points: tuple[PointResult, ...]
    design: Design
    _points_of: Mapping[str, tuple[PointResult, ...]]

    @staticmethod
    def of(
        name: str, scenario: Mapping[str, Any], keys: Sequence[str], points: Sequence[PointResult]
    ) -> "SweepResults":
        setting_keys = [key for key in keys if key != SEED]
        points_of: dict[str, list[PointResult]] = {}
        for point in points:
            setting = same([point.values[key] for key in setting_keys])
            points_of.setdefault(setting, []).append(point)
        design = Design.of(setting_keys, [point.values for point in points])
        by_setting = {setting: tuple(runs) for setting, runs in points_of.items()}
        return SweepResults(name, scenario, tuple(keys), tuple(points), design, by_setting)

    @staticmethod
    def of_plan(plan: Plan, outcomes: Iterable[PointOutcome]) -> "SweepResults":
        """The results of a plan; `outcomes` are in the order of its points."""
        points = [
            PointResult(plan.values(point.settings), point_file(outcome.key), outcome.status.value,
                        outcome.result, outcome.message)
            for point, outcome in zip(plan.points, outcomes, strict=True)
        ]  # fmt: skip
        return SweepResults.of(plan.base.scenario.name, plan.base.raw, plan.keys, points)

    def points_of(self, setting: Settings) -> tuple[PointResult, ...]:
        """The points of a setting, one for each seed."""
        return self._points_of[same([setting[key] for key in self.design.keys])]

    def summaries(self, setting: Settings) -> tuple[Summary, ...]:
        """The summaries of the setting's points that did not fail."""
        points = self.points_of(setting)
        return tuple(point.summary for point in points if point.summary is not None)

    def interval(self, setting: Settings, metric: MetricName) -> MeanInterval:
        """The metric's mean over the runs in which it is defined."""
        values = (metric.value(summary) for summary in self.summaries(setting))
        return mean_interval([value for value in values if value is not None])

    def confidence(self, setting: Settings) -> dict[str, Any]:
        """How far to believe the means of a setting; empty if none of its runs says it."""
        found = (summary.get("confidence") for summary in self.summaries(setting))
        return over_seeds([each for each in found if each])

    def quantiles(self, setting: Settings, metric: str, group: str = "") -> Float64 | None:
        """Quantiles of a latency, each the mean over the runs; shape [len(PERCENTS)].

        The metric is a latency, such as `ttft_ms`; the group is as in `MetricName`.
        """
        name = metric.replace("_ms", "_quantiles_ms")
        parts = [group_of(summary, group) for summary in self.summaries(setting)]
        samples = [part[name] for part in parts if isinstance(part, Mapping) and part.get(name)]
        return np.mean(samples, axis=0) if samples else None

    @property
    def slo_limits(self) -> dict[str, float]:
        """The limits of the SLO, by the metric held against each; those that all runs have."""
        found = [slo_limits(point.summary) for point in self.points if point.summary is not None]
        first = found[0] if found else {}
        return {
            name: limit
            for name, limit in first.items()
            if all(other.get(name) == limit for other in found)
        }

    @property
    def setting_metrics(self) -> tuple[str, ...]:
        """The metrics of every setting in results.json: with an SLO, first those it is about.

        If only a window of each run was measured, the offered load is beside the achieved one.
        """
        summaries = [point.summary for point in self.points if point.summary is not None]
        names: list[str] = []
        if any("window" in summary for summary in summaries):
            names += ["request_rate", "request_throughput"]
        limits = [name for summary in summaries for name in slo_limits(summary)]
        if limits:
            names += ["request_goodput", "slo_attainment", *limits]
        return tuple(dict.fromkeys((*names, *SETTING_METRICS)))

    @property
    def table_metrics(self) -> tuple[str, ...]:
        """Those of them in tables: no mean of a latency whose percentile has a limit."""
        with_limit = {name.partition("_")[2] for name in self.setting_metrics
                      if name not in SETTING_METRICS or name in self.slo_limits}  # fmt: skip
        means = {f"mean_{latency}" for latency in with_limit}
        return tuple(name for name in self.setting_metrics if name not in means)

    @property
    def num_failed(self) -> int:
        return sum(point.summary is None for point in self.points)

    @property
    def num_seeds(self) -> int:
        """The largest number of runs that a setting has."""
        return max((len(self.summaries(setting)) for setting in self.design.settings), default=0)

    @property
    def has_intervals(self) -> bool:
        """Whether any setting has enough runs for a confidence interval."""
        return self.num_seeds >= MIN_RUNS

    @property
    def tenants(self) -> list[str]:
        """The names of all tenants of all runs."""
        summaries = (point.summary for point in self.points if point.summary is not None)
        return sorted({tenant for summary in summaries for tenant in summary.get(TENANTS, {})})
