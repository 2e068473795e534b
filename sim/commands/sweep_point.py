"""What a worker of a sweep runs: one scenario, silently, down to its summary."""

from dataclasses import replace

from sim.commands.run import left_range, slo_of
from sim.des.routers.table import make_router
from sim.des.run import RunOptions, simulate
from sim.latency.model import latency_source
from sim.metrics.distributions import add_quantiles
from sim.metrics.summary import Summary, summarise
from sim.scenario.build import build
from sim.scenario.load import LoadedScenario
from sim.workload.traces.read import TraceReader


def run_point(loaded: LoadedScenario, read_trace: TraceReader) -> Summary:
    """Simulate a scenario; its summary without `wall_seconds`, which no two runs share.

    It has the quantiles of latencies: the run itself is not kept.

    Raises:
        InputError: the scenario, or a file it names.
    """
    built = build(loaded, read_trace=read_trace)
    source = latency_source(built.latencies[0])
    log = simulate(
        built.workload,
        built.scheduler,
        built.latencies,
        router=make_router(loaded.scenario.router),
        options=RunOptions(meta={} if source is None else {"latency_source": source}),
    )
    if left := str(left_range(built)):
        log = replace(log, meta={**log.meta, "left_range": left})
    summary = summarise(log, slo_of(loaded.scenario))
    del summary["wall_seconds"]
    return add_quantiles(summary, log)
