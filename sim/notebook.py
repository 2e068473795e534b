"""servetwin from Python, as notebooks use it: run a scenario, or sweep it, and draw what came out.

    result = run("scenarios/smoke.yaml", {"scheduler.schedule_policy": "lpm"})
    result.summary["mean_ttft_ms"]

    found = sweep("scenarios/smoke.yaml", {"sweep": {"scheduler.schedule_policy": ["fcfs", "lpm"]}})
    draw(found, kind="cdf", lines="scheduler.schedule_policy")

Tables, data frames and pictures of both are in `sim.report`, `draw` in `sim.report.sweep_plots`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.commands.run import simulate_built, slo_of
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
        scenario: path of the file; a sweep in it is left out.
        settings: values by key path, as of `--set`.

    Raises:
        InputError: the scenario, or a file it names.
    """
    loaded = load_scenario(scenario, _overrides(settings))
    log = simulate_built(build(loaded), RunOptions(meta={"name": loaded.scenario.name}))
    return RunResult(log, summarise(log, slo_of(loaded.scenario)))


def sweep(scenario: Path | str, settings: Settings | None = None) -> SweepResults:
    """Run every point of a scenario file's sweep, here and now, one after the other.

    `simulate sweep` does it on all cores, and keeps what it has run.

    Args:
        scenario: path of the file.
        settings: values by key path, as of `--set`; `sweep` may be among them.

    Raises:
        InputError: the scenario, one of its points, or a file it names.
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
