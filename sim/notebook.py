"""servetwin from Python, as notebooks use it: run a scenario, or sweep it, and get what came out.

    result = run("scenarios/smoke.yaml", {"scheduler.schedule_policy": "lpm"})
    result.summary["mean_ttft_ms"]

Tables and pictures of results are in `sim.report`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.commands.run import slo_of
from sim.commands.sweep_point import run_point
from sim.des.run import RunOptions, simulate
from sim.report.metrics import Summary, summarise
from sim.runlog import RunLog
from sim.scenario.build import build
from sim.scenario.load import LoadedScenario, load_scenario

if TYPE_CHECKING:
    from sim.report.sweep_data import SweepData

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run.

    Attributes:
        log: everything that happened; `sim.report.frames` makes data frames of it.
        summary: metrics by name, as `simulate run --format json` prints them.
    """

    log: RunLog
    summary: Summary


def run(scenario: Path | str, settings: Settings | None = None) -> Result:
    """Simulate a scenario file, with some settings changed.

    Args:
        scenario: path of the file; a sweep in it is left out.
        settings: values by key path, as of `--set`.

    Raises:
        InputError: the scenario, or a file it names.
    """
    loaded = load_scenario(scenario, _overrides(settings))
    built = build(loaded)
    log = simulate(
        built.workload,
        built.scheduler,
        built.latencies,
        router=loaded.scenario.router,
        options=RunOptions(meta={"name": loaded.scenario.name}),
    )
    return Result(log, summarise(log, slo_of(loaded.scenario)))
