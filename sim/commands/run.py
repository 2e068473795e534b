"""`simulate run`: one scenario, its summary, and the files asked for."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sim import __version__
from sim.commands.output import print_line, print_table
from sim.core.errors import InputError
from sim.des.run import RunOptions, simulate
from sim.report.files import summary_json, write_out_dir, write_requests
from sim.report.metrics import Slo, summarise
from sim.report.progress import Progress
from sim.report.tables import summary_table
from sim.runlog import RunLog
from sim.scenario.build import BuiltScenario, build
from sim.scenario.load import load_scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Where results go, besides the summary on stdout; None: nowhere."""

    directory: Path | None = None
    decisions: Path | None = None
    requests: Path | None = None
    perfetto: Path | None = None

    def check(self) -> None:
        """Find out before the run that a file cannot be written. Raises InputError."""
        for path in (self.decisions, self.requests, self.perfetto):
            if path is None:
                continue
            if not path.parent.is_dir():
                raise InputError(f"{path}: its folder {path.parent} does not exist")
            if path.is_dir():
                raise InputError(f"{path}: is a folder, expected a file to write")
        if self.requests is not None and self.requests.suffix not in {".csv", ".parquet"}:
            raise InputError(f"{self.requests}: expected a name that ends in .csv or .parquet")
        if self.directory is not None and self.directory.exists() and not self.directory.is_dir():
            raise InputError(f"{self.directory}: is a file, expected a folder")


def run_built(
    built: BuiltScenario,
    *,
    fast_forward: bool = True,
    check: bool = False,
    decisions: Path | None = None,
) -> RunLog:
    """Simulate a built scenario, with progress on stderr."""
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
        log = simulate(
            built.workload,
            built.scheduler,
            built.latencies,
            router=scenario.router,
            options=options,
        )
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
    outputs: Outputs,
    json: bool,
    fast_forward: bool,
    check: bool,
) -> None:
    """Run the scenario file and print its summary.

    Raises:
        InputError: the scenario, a file it names, or an output path.
    """
    outputs.check()
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
