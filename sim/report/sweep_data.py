"""A finished sweep as pictures need it: settings, and the summaries of their runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.report.confidence import MeanInterval, mean_interval
from sim.report.design import Design, Settings, same
from sim.report.latencies import Float64
from sim.report.metric_names import TENANTS, MetricName
from sim.report.sweep_results import SEED, PointResult

Summary = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SweepData:
    """All that a sweep found out.

    Attributes:
        name: of the scenario.
        scenario: what it says, `sweep` and `report` included.
        keys: the swept key paths, `seed` last where seeds are swept.
        points: what became of every point.
        design: the settings.
    """

    name: str
    scenario: Mapping[str, Any]
    keys: tuple[str, ...]
    points: tuple[PointResult, ...]
    design: Design
    _summaries: Mapping[str, tuple[Summary, ...]]

    @staticmethod
    def of(
        name: str, scenario: Mapping[str, Any], keys: Sequence[str], points: Sequence[PointResult]
    ) -> "SweepData":
        setting_keys = [key for key in keys if key != SEED]
        found: dict[str, list[Summary]] = {}
        for point in points:
            runs = found.setdefault(same([point.values[key] for key in setting_keys]), [])
            if point.summary is not None:
                runs.append(point.summary)
        design = Design.of(setting_keys, [point.values for point in points])
        summaries = {setting: tuple(runs) for setting, runs in found.items()}
        return SweepData(name, scenario, tuple(keys), tuple(points), design, summaries)

    def summaries(self, setting: Settings) -> tuple[Summary, ...]:
        """Of the setting's runs that finished, one a seed."""
        return self._summaries[same([setting[key] for key in self.design.keys])]

    def interval(self, setting: Settings, metric: MetricName) -> MeanInterval:
        """The metric's mean over the runs in which it is defined."""
        values = (metric.value(summary) for summary in self.summaries(setting))
        return mean_interval([value for value in values if value is not None])

    def quantiles(self, setting: Settings, metric: str, group: str = "") -> Float64 | None:
        """Quantiles of a latency, each the mean over the runs; shape [len(PERCENTS)].

        Args:
            setting: whose runs.
            metric: `ttft_ms`, ...
            group: whose requests, as in `MetricName`.
        """
        name = metric.replace("_ms", "_quantiles_ms")
        parts = [_part(summary, group).get(name) for summary in self.summaries(setting)]
        samples = [part for part in parts if part]
        return np.mean(samples, axis=0) if samples else None

    @property
    def num_failed(self) -> int:
        return sum(point.summary is None for point in self.points)

    @property
    def num_seeds(self) -> int:
        """How many runs a setting has, at most."""
        return max((len(runs) for runs in self._summaries.values()), default=0)

    @property
    def has_intervals(self) -> bool:
        """Whether any setting has runs enough for one."""
        return any(mean_interval([0.0] * len(runs)).half_width is not None
                   for runs in self._summaries.values())  # fmt: skip

    @property
    def tenants(self) -> list[str]:
        """Of any run, by name."""
        runs = [summary for runs in self._summaries.values() for summary in runs]
        return sorted({tenant for summary in runs for tenant in summary.get(TENANTS, {})})


def _part(summary: Summary, group: str) -> Summary:
    if group.startswith(f"{TENANTS}."):
        part = summary.get(TENANTS, {}).get(group.removeprefix(f"{TENANTS}."), {})
    else:
        part = summary.get(group, {}) if group else summary
    return part if isinstance(part, Mapping) else {}
