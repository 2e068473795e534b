"""Runs one point of a sweep in a worker: a scenario, without a progress bar, up to its summary."""

from sim.commands.run import slo_of
from sim.commands.simulate import simulate_measured
from sim.des.run import RunOptions
from sim.metrics.distributions import add_quantiles
from sim.metrics.summary import Summary, summarise
from sim.scenario.build import build
from sim.scenario.load import LoadedScenario
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
