"""Studies run in this process on the shipped scenario files; some tests make them smaller."""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pytest

from sim.commands.running.points import run_point
from sim.scenario.load import load_scenario
from sim.sweep.plan import Plan, plan_sweep
from sim.workers.executor import PointWork, TraceCache

STUDIES = Path(__file__).parents[2] / "scenarios" / "studies"


class Run(NamedTuple):
    """A point of a sweep. Settings are named by the last part of their key path."""

    settings: Mapping[str, Any]
    summary: Mapping[str, Any]


class Results(NamedTuple):
    """All points of a sweep."""

    runs: list[Run]

    def mean(self, metric: str, **settings: Any) -> float:
        """The metric's mean over the seeds of the point with these settings.

        A metric of a group of requests has dots: `tenants.chat.mean_ttft_ms`.
        """
        found = [
            _value(run.summary, metric)
            for run in self.runs
            if all(run.settings.get(name) == value for name, value in settings.items())
        ]
        assert found, f"no point with {settings}"
        return fmean(found)

    def means(self, metric: str, key: str, values: list[Any], **settings: Any) -> list[float]:
        """The metric's means along a swept key."""
        return [self.mean(metric, **{key: value}, **settings) for value in values]


@pytest.fixture(scope="module")
def plan_of():
    """The plan of a study: its own sweep, or the one given."""

    def plan(name: str, sweep: Mapping[str, Any] | None = None, *overrides: str) -> Plan:
        replaced = [] if sweep is None else [f"sweep={json.dumps(sweep)}"]
        return plan_sweep(load_scenario(STUDIES / f"{name}.yaml", [*replaced, *overrides]))

    return plan


@pytest.fixture(scope="module")
def study(plan_of):
    """Run a study. Every request must finish."""

    def run(name: str, sweep: Mapping[str, Any] | None = None, *overrides: str) -> Results:
        plan, read_trace, runs = plan_of(name, sweep, *overrides), TraceCache(), []
        for point in plan.points:
            summary = run_point(PointWork(plan.vary(point.settings)), read_trace)
            assert summary["completed"] == summary["submitted"]
            settings = {key.rpartition(".")[2]: value for key, value in point.settings.items()}
            runs.append(Run(settings, summary))
        return Results(runs)

    return run


def _value(summary: Mapping[str, Any], metric: str) -> float:
    value: Any = summary
    for part in metric.split("."):
        value = value[part]
    return float(value)
