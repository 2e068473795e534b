"""`simulate run`: simulates a scenario, prints its summary, and writes the requested files."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from sim import __version__
from sim.commands.output import ResultFiles, print_line, print_summary
from sim.core.errors import InputError
from sim.core.say import say
from sim.des.routers.table import make_router
from sim.des.run import RunOptions, simulate
from sim.latency.config import num_ranks
from sim.latency.model import Ranged, each_latency, latency_source
from sim.latency.range_report import RangeReport
from sim.metrics.slo import Slo
from sim.metrics.summary import summarise
from sim.metrics.window import with_window
from sim.report.progress import Progress
from sim.report.run_folder import summary_json, write_out_dir, write_requests
from sim.runlog import RunLog
from sim.scenario.build import BuiltScenario, build, located_errors
from sim.scenario.load import LoadedScenario, load_scenario
from sim.scenario.schema import Scenario
from sim.workload.bench.build import BenchWorkload


def run_built(
    built: BuiltScenario,
    *,
    fast_forward: bool = True,
    check: bool = False,
    decisions: Path | None = None,
) -> RunLog:
    """Simulate a built scenario, with progress on stderr.

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
    with Progress(built.workload.num_requests) as progress:
        options = RunOptions(
            fast_forward=fast_forward,
            check=check,
            decisions=decisions,
            watcher=progress.update,
            meta=meta,
        )
        try:
            log = simulate_measured(built, options)
        except OSError as error:
            # The decision log is the only file that a simulation writes.
            raise InputError(f"{decisions}: cannot be written: {error.strerror}") from error
    return replace(log, meta={**log.meta, "wall_seconds": time.perf_counter() - begin_s})


def simulate_built(built: BuiltScenario, options: RunOptions) -> RunLog:
    """Simulate a built scenario, silently.

    The log's `meta` also says where step times come from (`latency_source`), how many steps were
    outside of the ranges in which the latency models were measured (`left_range`), what a trace's
    reader left out or estimated (`traffic_notes`), and which benchmark's client sent the requests
    (`client`), if one did.
    """
    latencies = list(each_latency(built.latencies))
    if (source := latency_source(latencies[0])) is not None:
        options = replace(options, meta={**options.meta, "latency_source": source})
    if built.workload.notes:
        notes = list(built.workload.notes)
        options = replace(options, meta={**options.meta, "traffic_notes": notes})
    if isinstance(built.workload, BenchWorkload):
        options = replace(options, meta={**options.meta, "client": dict(built.workload.client)})
    scenario = built.loaded.scenario
    if not built.foresees:
        options = replace(options, fast_forward=False)
    with located_errors(built.loaded):
        log = simulate(
            built.workload,
            built.scheduler,
            built.latencies,
            router=make_router(scenario.router, built.loaded.base_dir),
            host=scenario.host,
            num_front_ends=scenario.scheduler.num_front_ends(num_ranks(scenario.latency)),
            options=options,
        )
    ranged = (latency for latency in latencies if isinstance(latency, Ranged))
    left = str(RangeReport.merged(latency.left_range() for latency in ranged))
    return replace(log, meta={**log.meta, "left_range": left}) if left else log


def simulate_measured(built: BuiltScenario, options: RunOptions) -> RunLog:
    """Like `simulate_built`; metrics of the log leave out the scenario's warm-up and cool-down.

    Raises:
        InputError: they leave no request.
    """
    scenario = built.loaded.scenario
    warmup, cooldown = scenario.warmup, scenario.cooldown
    if warmup is None and cooldown is None:
        return simulate_built(built, options)
    log = simulate_built(built, replace(options, timed_gaps=True))
    with located_errors(built.loaded):
        return with_window(
            log,
            None if warmup is None else warmup.edge(),
            None if cooldown is None else cooldown.edge(),
        )


def slo_of(scenario: Scenario) -> Slo:
    """The scenario's service level objectives."""
    slo = scenario.slo
    return Slo(slo.ttft_ms, slo.tpot_ms, slo.e2e_latency_ms, slo.percentile)


def _without_effect(loaded: LoadedScenario) -> Iterator[str]:
    """Options that somebody gave to change step times, which do not."""
    if loaded.scenario.latency.kind == "linear":
        for key in ("model", "hardware"):
            if (key,) in loaded.locations.overridden:
                label = loaded.locations.labels[key,]
                yield f"{label}: changes no step time: latency of kind linear (roofline would)"


def _run_and_log(
    built: BuiltScenario, outputs: ResultFiles, *, fast_forward: bool, check: bool
) -> RunLog:
    """Simulate, and write what is made of the decision log."""
    with ExitStack() as opened:
        decisions = outputs.decisions
        if decisions is None and outputs.timeline is not None:
            decisions = Path(opened.enter_context(TemporaryDirectory())) / "decisions.jsonl"
        log = run_built(built, fast_forward=fast_forward, check=check, decisions=decisions)
        if outputs.timeline is not None and decisions is not None:
            from sim.commands.timeline import write_timeline_page

            write_timeline_page(decisions, outputs.timeline, built.loaded.scenario.name)
    return log


def run(
    path: Path,
    *,
    overrides: Sequence[str],
    outputs: ResultFiles,
    json: bool,
    fast_forward: bool,
    check: bool,
) -> None:
    """Run the scenario file and print its summary.

    Raises:
        InputError: the scenario, a file that it names, or an output path is invalid.
    """
    outputs.check(path)
    built = build(load_scenario(path, overrides))
    # Now that everything is read: no input is overwritten.
    outputs.check(path)
    for section in ("sweep", "tune", "plan"):
        if getattr(built.loaded.scenario, section) is not None:
            without = f"runs without its {section} (see simulate {section})"
            say(f"servetwin: {path}: {without}")
    for remark in _without_effect(built.loaded):
        say(f"servetwin: {remark}")
    log = _run_and_log(built, outputs, fast_forward=fast_forward, check=check)
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
