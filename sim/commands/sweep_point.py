"""The points of a sweep or a search: the folder for them, and how a worker runs one."""

from pathlib import Path

from sim.commands.run_built import slo_of
from sim.commands.simulate import simulate_measured
from sim.core.files import lock_folder, make_directory
from sim.des.run import RunOptions
from sim.metrics.summary import Summary, add_quantiles, summarise
from sim.scenario.build import build
from sim.scenario.load import LoadedScenario
from sim.sweep.result_files import remove_results
from sim.sweep.store import POINTS
from sim.workload.traces.read import TraceReader


def run_point(loaded: LoadedScenario, read_trace: TraceReader) -> Summary:
    """Simulate a scenario and return its summary, without `wall_seconds`, which no two runs share.

    The summary also has quantiles of latencies, because the run's log is not kept.

    Raises:
        InputError: the scenario, or a file that it names, is invalid.
    """
    built = build(loaded, read_trace=read_trace)
    log = simulate_measured(built, RunOptions())
    summary = summarise(log, slo_of(loaded.scenario))
    del summary["wall_seconds"]
    return add_quantiles(summary, log)


def prepare_folder(out: Path) -> None:
    """Make and lock a folder, and remove earlier results. Raises InputError if that fails."""
    make_directory(out)
    lock_folder(out)
    make_directory(out / POINTS)
    remove_results(out)
