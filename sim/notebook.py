"""servetwin from Python, as notebooks use it: run a scenario or its sweep, and draw the results.

    result = run("scenarios/smoke.yaml", {"scheduler.schedule_policy": "lpm"})
    result.summary["mean_ttft_ms"]

    found = sweep("scenarios/smoke.yaml", {"sweep": {"scheduler.schedule_policy": ["fcfs", "lpm"]}})
    draw(found, kind="cdf", lines="scheduler.schedule_policy")

`draw` is in `sim.report.sweep_plots`; `sim.report` also makes tables and data frames.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.commands.run import simulate_measured, slo_of
from sim.commands.sweep_point import run_point
from sim.des.run import RunOptions
from sim.metrics.summary import Summary, summarise
from sim.runlog import RunLog
from sim.scenario.build import build
from sim.scenario.load import load_scenario
from sim.sweep.executor import PointOutcome, PointStatus
from sim.sweep.plan import plan_sweep
from sim.sweep.results import SweepResults
from sim.sweep.trace_cache import TraceCache

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run and its summary.

    Attributes:
        log: everything that happened; `sim.report.frames` makes data frames of it.
        summary: metrics by name, as `simulate run --format json` prints them.
    """

    log: RunLog
    summary: Summary


def run(scenario: Path | str, settings: Settings | None = None) -> RunResult:
    """Simulate a scenario file, with some settings changed.

    Args:
        scenario: path of the file; its `sweep` section is ignored.
        settings: values by key path, as for `--set`.

    Raises:
        InputError: the scenario, or a file that it names, is invalid.
    """
    loaded = load_scenario(scenario, _overrides(settings))
    log = simulate_measured(build(loaded), RunOptions(meta={"name": loaded.scenario.name}))
    return RunResult(log, summarise(log, slo_of(loaded.scenario)))


def sweep(scenario: Path | str, settings: Settings | None = None) -> SweepResults:
    """Run every point of a scenario file's sweep in this process, one after the other.

    `simulate sweep` runs the points on all cores and stores their results.

    Args:
        scenario: path of the file.
        settings: values by key path, as for `--set`; `sweep` may be among them.

    Raises:
        InputError: the scenario, one of its points, or a file that it names, is invalid.
    """
    plan = plan_sweep(load_scenario(scenario, _overrides(settings)))
    cache = TraceCache()
    return SweepResults.of_plan(
        plan,
        (
            PointOutcome(
                point.content_hash, PointStatus.DONE, run_point(plan.scenario(point), cache)
            )
            for point in plan.points
        ),
    )


def _overrides(settings: Settings | None) -> list[str]:
    return [f"{key}={json.dumps(value)}" for key, value in (settings or {}).items()]
