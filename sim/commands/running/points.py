"""Runs one point of a sweep or a contest. What these functions import decides its results."""

from sim.commands.running.simulate import simulate_measured, summary_with_confidence
from sim.contest.slowdown import slowdown_metrics
from sim.des.run import RunOptions
from sim.metrics.summary import Summary, add_quantiles
from sim.scenario.build import build
from sim.scenario.load import LoadedScenario
from sim.workload.traces.read import TraceReader


def run_point(loaded: LoadedScenario, read_trace: TraceReader) -> Summary:
    """Simulate a scenario and return its summary, without `wall_seconds`, which no two runs share.

    The summary also has quantiles of latencies, because the run's log is not kept.
    """
    built = build(loaded, read_trace=read_trace)
    log = simulate_measured(built, RunOptions())
    summary = summary_with_confidence(log, built)
    del summary["wall_seconds"]
    return add_quantiles(summary, log)


def run_contest_point(loaded: LoadedScenario, read_trace: TraceReader) -> Summary:
    """Simulate a scenario; returns its summary, with `contest`: what only contests measure."""
    built = build(loaded, read_trace=read_trace)
    log = simulate_measured(built, RunOptions())
    summary = summary_with_confidence(log, built)
    del summary["wall_seconds"]
    return {**summary, "contest": slowdown_metrics(log, built)}
