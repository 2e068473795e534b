"""Runs a built scenario as a command does: with progress, perhaps in workers."""

import time
from dataclasses import replace
from pathlib import Path

from sim import __version__
from sim.commands.running.simulate import Simulation, simulate_here, simulate_measured
from sim.core.errors import InputError
from sim.des.run import RunOptions
from sim.metrics.slo import Slo
from sim.metrics.summary import Summary, summarise
from sim.report.progress import Progress
from sim.runlog import RunLog
from sim.scenario.build import BuiltScenario
from sim.scenario.schema import Scenario


def in_workers(
    built: BuiltScenario, jobs: int | None, *, ray: bool = False, ray_address: str | None = None
) -> Simulation:
    """How to simulate the replicas of a scenario in workers. It changes no result.

    Args:
        built: the scenario.
        jobs: how many workers; None: with Ray, one for each core of the cluster, but no more than
            replicas; else one, which is this process.
        ray: use Ray, instead of processes of this machine.
        ray_address: the address of a Ray cluster; None: a cluster on this machine.
    """
    if ray_address is not None and not ray:
        raise InputError("--ray-address: goes with --executor ray")
    if not ray and (jobs or 1) == 1:
        return simulate_here
    # Most runs start no worker, and need none of this.
    from sim.commands.running.run_parts import parallel
    from sim.workers.choose import choose_executor

    return parallel(built, choose_executor(jobs, ray=ray, ray_address=ray_address), jobs)


def run_built(
    built: BuiltScenario,
    *,
    fast_forward: bool = True,
    check: bool = False,
    decisions: Path | None = None,
    simulation: Simulation = simulate_here,
) -> RunLog:
    """Simulate a built scenario, with progress on stderr; see `RunOptions` for the arguments."""
    begin_s = time.perf_counter()
    with Progress(built.workload.num_requests) as progress:
        options = RunOptions(
            fast_forward=fast_forward,
            check=check,
            decisions=decisions,
            watcher=progress.update,
            meta=run_meta(built, "simulation"),
        )
        try:
            log = simulate_measured(built, options, simulation)
        except OSError as error:
            # The decision log is the only file that a simulation writes.
            raise InputError(f"{decisions}: cannot be written: {error.strerror}") from error
    return replace(log, meta={**log.meta, "wall_seconds": time.perf_counter() - begin_s})


def run_meta(built: BuiltScenario, source: str) -> dict[str, object]:
    """What a log says about its run; `source`: what made it."""
    return {
        "name": built.loaded.scenario.name,
        "seed": built.loaded.scenario.seed,
        "scenario_hash": built.loaded.content_hash,
        "servetwin_version": __version__,
        "source": source,
    }


def summary_of(log: RunLog, scenario: Scenario) -> Summary:
    """The summary of a run of a scenario, with the scenario's service level objectives."""
    slo = scenario.slo
    return summarise(log, Slo(slo.ttft_ms, slo.tpot_ms, slo.e2e_latency_ms, slo.percentile))
