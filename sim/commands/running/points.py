"""Runs one point of a sweep or a contest. What these functions import decides its results."""

from sim.commands.running.simulate import simulate_measured, slo_of, summary_with_confidence
from sim.contest.slowdown import slowdown_metrics
from sim.des.run import RunOptions
from sim.metrics.early_stop import MissCounter
from sim.metrics.summary import Summary, add_quantiles
from sim.scenario.build import BuiltScenario, build
from sim.workers.executor import PointWork
from sim.workload.traces.read import TraceReader


def run_point(work: PointWork, read_trace: TraceReader) -> Summary:
    """Simulate a scenario and return its summary, without `wall_seconds`, which no two runs share.

    The summary also has quantiles of latencies, because the run's log is not kept.

    Raises RunStoppedError: its SLO attainment is certain to be lower than what matters.
    """
    built = build(work.loaded, read_trace=read_trace)
    log = simulate_measured(built, _options(built, work.least_attainment))
    summary = summary_with_confidence(log, built)
    del summary["wall_seconds"]
    return add_quantiles(summary, log)


def _options(built: BuiltScenario, least_attainment: float) -> RunOptions:
    scenario = built.loaded.scenario
    # Which requests a window leaves out is known at the end only.
    is_whole = scenario.warmup is None and scenario.cooldown is None
    if not least_attainment or not is_whole or not scenario.slo.has_limit:
        return RunOptions()
    counter = MissCounter(slo_of(scenario), built.workload.num_requests, least_attainment)
    return RunOptions(on_end=counter.ended)


def run_contest_point(work: PointWork, read_trace: TraceReader) -> Summary:
    """Simulate a scenario; returns its summary, with `contest`: what only contests measure.

    Raises RunStoppedError: as `run_point`.
    """
    built = build(work.loaded, read_trace=read_trace)
    log = simulate_measured(built, _options(built, work.least_attainment))
    summary = summary_with_confidence(log, built)
    del summary["wall_seconds"]
    return {**summary, "contest": slowdown_metrics(log, built)}
