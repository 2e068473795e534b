"""Runs a built scenario as a command does: with progress, in workers, and with its files."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from sim import __version__
from sim.commands.output import ResultFiles, print_line, print_summary
from sim.commands.simulate import Simulation, simulate_here, simulate_measured
from sim.core.errors import InputError
from sim.core.files import write_text
from sim.core.messages import say
from sim.des.run import RunOptions
from sim.metrics.slo import Slo
from sim.metrics.summary import summarise
from sim.report.progress import Progress
from sim.report.run_folder import summary_json, write_out_dir, write_requests
from sim.runlog import RunLog
from sim.scenario.build import BuiltScenario
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWorkers:
    """Where the replicas of a run are simulated. It changes no result.

    Attributes:
        jobs: how many workers; None: with Ray, one for each core of the cluster, but no more than
            replicas; else one, which is this process.
        ray: use Ray, instead of processes of this machine.
        ray_address: the address of a Ray cluster; None: a cluster on this machine.
    """

    jobs: int | None = None
    ray: bool = False
    ray_address: str | None = None

    def check(self) -> None:
        """Raise InputError if the options contradict each other."""
        if self.ray_address is not None and not self.ray:
            raise InputError("--ray-address: goes with --executor ray")


def in_workers(built: BuiltScenario, workers: RunWorkers) -> Simulation:
    """How to simulate a scenario with these workers.

    Raises:
        InputError: the options contradict each other, or Ray is not installed.
    """
    workers.check()
    if not workers.ray and (workers.jobs or 1) == 1:
        return simulate_here
    # Most runs start no worker, and need none of this.
    from sim.commands.run_parts import parallel
    from sim.workers.choose import choose_executor

    executor = choose_executor(workers.jobs, ray=workers.ray, ray_address=workers.ray_address)
    return parallel(built, executor, workers.jobs)


def run_built(
    built: BuiltScenario,
    *,
    fast_forward: bool = True,
    check: bool = False,
    decisions: Path | None = None,
    workers: RunWorkers | None = None,
) -> RunLog:
    """Simulate a built scenario, with progress on stderr.

    Args:
        built: the scenario.
        fast_forward: see `RunOptions`.
        check: see `RunOptions`.
        decisions: see `RunOptions`.
        workers: simulate the replicas in several workers if they cannot influence one another;
            None: in this process.

    Raises:
        InputError: the decision log cannot be written, or a latency recording is too short.
    """
    scenario = built.loaded.scenario
    meta = {
        "name": scenario.name,
        "seed": scenario.seed,
        "scenario_hash": built.loaded.content_hash,
        "servetwin_version": __version__,
        "source": "simulation",
    }
    begin_s = time.perf_counter()
    simulation = simulate_here if workers is None else in_workers(built, workers)
    with Progress(built.workload.num_requests) as progress:
        options = RunOptions(
            fast_forward=fast_forward,
            check=check,
            decisions=decisions,
            watcher=progress.update,
            meta=meta,
        )
        try:
            log = simulate_measured(built, options, simulation)
        except OSError as error:
            # The decision log is the only file that a simulation writes.
            raise InputError(f"{decisions}: cannot be written: {error.strerror}") from error
    return replace(log, meta={**log.meta, "wall_seconds": time.perf_counter() - begin_s})


def slo_of(scenario: Scenario) -> Slo:
    """The scenario's service level objectives."""
    slo = scenario.slo
    return Slo(slo.ttft_ms, slo.tpot_ms, slo.e2e_latency_ms, slo.percentile)


def run_for_files(
    built: BuiltScenario,
    outputs: ResultFiles,
    *,
    fast_forward: bool,
    check: bool,
    workers: RunWorkers | None,
) -> RunLog:
    """Simulate; write what is made of the decision log, and say what has no effect.

    Raises:
        InputError: a file cannot be written, or a latency recording is too short.
    """
    for section in ("sweep", "tune", "plan"):
        if getattr(built.loaded.scenario, section) is not None:
            without = f"runs without its {section} (see simulate {section})"
            say(f"servetwin: {built.loaded.path}: {without}")
    for remark in _without_effect(built.loaded):
        say(f"servetwin: {remark}")
    with ExitStack() as opened:
        decisions = outputs.decisions
        if decisions is None and outputs.timeline is not None:
            decisions = Path(opened.enter_context(TemporaryDirectory())) / "decisions.jsonl"
        log = run_built(
            built, fast_forward=fast_forward, check=check, decisions=decisions, workers=workers
        )
        if outputs.timeline is not None and decisions is not None:
            from sim.report.activity import activity
            from sim.report.timeline_page import timeline_page
            from sim.runlog.read_decisions import decision_lines

            steps = activity(decision_lines(decisions))
            write_text(outputs.timeline, timeline_page(built.loaded.scenario.name, steps))
    return log


def print_results(log: RunLog, built: BuiltScenario, outputs: ResultFiles, *, json: bool) -> None:
    """Write the files of a log, print its summary, and warn of what it was not measured for."""
    summary = summarise(log, slo_of(built.loaded.scenario))
    if outputs.requests is not None:
        write_requests(log, outputs.requests)
    if outputs.perfetto is not None:
        from sim.report.perfetto import write_perfetto

        write_perfetto(log, outputs.perfetto)
    if outputs.directory is not None:
        write_out_dir(log, summary, outputs.directory, built.loaded.raw)
    if json:
        print_line(summary_json(summary).rstrip())
    else:
        print_summary(summary)
    if "left_range" in log.meta:
        say(f"servetwin: warning: {log.meta['left_range']}")


def _without_effect(loaded: LoadedScenario) -> Iterator[str]:
    """Options that somebody gave to change step times, which do not."""
    if loaded.scenario.latency.kind == "linear":
        for key in ("model", "hardware"):
            if (key,) in loaded.locations.overridden:
                label = loaded.locations.labels[key,]
                yield f"{label}: changes no step time: latency of kind linear (roofline would)"
