"""`simulate run`: one scenario, its summary, and the files asked for."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sim import __version__
from sim.commands.output import print_line, print_table
from sim.commands.result_files import ResultFiles
from sim.core.errors import InputError
from sim.des.run import RunOptions, simulate
from sim.report.files import summary_json, write_out_dir, write_requests
from sim.report.metrics import Slo, summarise
from sim.report.progress import Progress
from sim.report.tables import summary_table
from sim.runlog import RunLog
from sim.scenario.build import BuiltScenario, build
from sim.scenario.load import load_scenario


def run_built(
    built: BuiltScenario,
    *,
    fast_forward: bool = True,
    check: bool = False,
    decisions: Path | None = None,
) -> RunLog:
    """Simulate a built scenario, with progress on stderr.

    Raises:
        InputError: the decision log cannot be written, or a recording is too short.
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
            log = simulate(
                built.workload,
                built.scheduler,
                built.latencies,
                router=scenario.router,
                options=options,
            )
        except OSError as error:
            # The decision log is all that a simulation writes.
            raise InputError(f"{decisions}: cannot be written: {error.strerror}") from error
    wall_seconds = time.perf_counter() - begin_s
    return replace(log, meta={**log.meta, "wall_seconds": wall_seconds})


def slo_of(built: BuiltScenario) -> Slo:
    """The scenario's service level objectives."""
    slo = built.loaded.scenario.slo
    return Slo() if slo is None else Slo(slo.ttft_ms, slo.tpot_ms, slo.e2e_latency_ms)


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
        InputError: the scenario, a file it names, or an output path.
    """
    outputs.check(path)
    built = build(load_scenario(path, overrides))
    log = run_built(built, fast_forward=fast_forward, check=check, decisions=outputs.decisions)
    summary = summarise(log, slo_of(built))
    if outputs.requests is not None:
        write_requests(log, outputs.requests)
    if outputs.perfetto is not None:
        from sim.report.perfetto import write_perfetto

        write_perfetto(log, outputs.perfetto)
    if outputs.directory is not None:
        write_out_dir(log, summary, outputs.directory)
    if json:
        print_line(summary_json(summary).rstrip())
    else:
        print_table(summary_table(summary))
