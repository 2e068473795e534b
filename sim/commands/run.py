"""`simulate run`: simulates a scenario, prints its summary, and writes the requested files."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.command_line import (
    Backend,
    RayAddress,
    Set,
    SummaryFormat,
    command,
    file_option,
    format_option,
    out_option,
    with_tracebacks,
)
from sim.commands.without_file import File, OneServer, scenario_text
from sim.core.errors import InputError

if TYPE_CHECKING:
    from sim.metrics.summary import Summary
    from sim.runlog import RunLog
    from sim.scenario.build import BuiltScenario
    from sim.scenario.load import LoadedScenario

_REQUEST_SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """The files that a run writes beside those of its `--out` folder; None: not written."""

    decisions: Annotated[
        Path | None, file_option("write the decision log to this file (.jsonl or .jsonl.gz)")
    ] = None
    requests: Annotated[
        Path | None, file_option("write a row for each request to this file (.csv or .parquet)")
    ] = None
    perfetto: Annotated[
        Path | None, file_option("write a trace for ui.perfetto.dev to this file")
    ] = None
    timeline: Annotated[
        Path | None, file_option("write a page of all steps and requests over time to this file")
    ] = None

    def check(self, scenario: Path, folder: Path | None) -> None:
        """Check all paths, also against the inputs that were read so far: none is overwritten."""
        from sim.commands.output import check_folder, check_writable
        from sim.core.files import check_target

        if self.requests is not None and self.requests.suffix not in _REQUEST_SUFFIXES:
            known = " or ".join(_REQUEST_SUFFIXES)
            raise InputError(f"{self.requests}: expected a name that ends in {known}")
        taken = {scenario.resolve(): "the scenario"}
        for name in ("decisions", "requests", "perfetto", "timeline"):
            path: Path | None = getattr(self, name)
            if path is None:
                continue
            check_target(path)
            check_writable(path, path.parent)
            if path.resolve() in taken:
                raise InputError(f"--{name} {path}: is {taken[path.resolve()]}")
            taken[path.resolve()] = f"the file of --{name} already"
        if folder is not None:
            check_folder(folder, scenario)


@dataclass(frozen=True, slots=True, kw_only=True)
class HowToRun:
    """How a run is computed and checked. It changes no result."""

    fast_forward: Annotated[
        bool,
        typer.Option(
            "--fast-forward/--no-fast-forward",
            help="compute runs of equal decode steps at once, or one by one: same results, slower",
        ),
    ] = True
    check: Annotated[
        bool, typer.Option("--check", help="verify the invariants after every step")
    ] = False
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="workers that share the replicas; default: 1, on Ray all cores"),
    ] = None
    executor: Annotated[Backend, typer.Option(help="where workers run")] = Backend.PROCESS
    ray_address: RayAddress = None


@command(user_code=True)
def run(
    *,
    file: File = None,
    one: OneServer,
    set_: Set = None,
    out: Annotated[Path | None, out_option("folder for summary, tables and plots")] = None,
    format_: Annotated[
        SummaryFormat | None,
        format_option("summary; default: table, without FILE vllm-bench"),
    ] = None,
    files: RunFiles,
    how: HowToRun,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="show the traceback of an error, such as one in a class of yours"
        ),
    ] = False,
) -> None:
    """Run one scenario and print its summary.

    With FILE: a scenario. Without it: one server, and the traffic of a benchmark.
    """
    from sim.core.errors import say
    from sim.scenario.build import build

    with with_tracebacks(debug):
        read = file or Path()
        files.check(read, out)
        loaded = _load(file, one, out, set_ or ())
        _say_what_it_takes(loaded.scenario.workload)
        built = build(loaded)
        # Again, now that all inputs are read.
        files.check(read, out)
        for remark in _remarks(built.loaded):
            say(f"servetwin: {remark}")
        log = _simulate(built, files, how)
        _write_results(log, built, files, out, format_, is_file=file is not None)
        if file is None and out is not None:
            from sim.core.files import write_text

            write_text(loaded.path, scenario_text(loaded, "run"))


def _load(
    file: Path | None, one: OneServer, out: Path | None, overrides: Sequence[str]
) -> "LoadedScenario":
    from sim.scenario.load import load_scenario

    if file is None:
        return one.load(out or Path(), overrides)
    one.check_unused()
    return load_scenario(file, overrides)


# Bytes of a request before the run, and of a client that waits; what is said, and when.
_REQUEST_BYTES, _CLIENT_BYTES = 60, 4000
_MANY_REQUESTS, _REQUESTS_PER_S = 2_000_000, 2_000


def _say_what_it_takes(workload: object) -> None:
    """Say what a very large workload takes, before it is made, which itself takes a while."""
    from sim.core.errors import say

    parts = [part.workload for part in getattr(workload, "parts", ())] or [workload]
    num_clients = sum(getattr(each, "clients", None) or 0 for each in parts)
    num_requests = sum(map(_num_requests, parts))
    if num_requests >= _MANY_REQUESTS:
        num_bytes = num_requests * _REQUEST_BYTES + num_clients * _CLIENT_BYTES
        hours = num_requests / _REQUESTS_PER_S / 3600
        say(
            f"servetwin: {num_requests:,} requests: takes some {hours:,.1f} hours, at"
            f" {_REQUESTS_PER_S:,} requests a second, and at least {num_bytes / 1e9:,.1f} GB"
        )


def _num_requests(workload: object) -> int:
    """About how many requests a section describes; 0: not known before it is read."""
    each = getattr(workload, "requests_per_client", None)
    if each is not None:
        return int(each * workload.clients)  # type: ignore[attr-defined]
    counts = (getattr(workload, name, None) for name in ("num_requests", "num_prompts", "sessions"))
    return next((int(count) for count in counts if count is not None), 0)


def _remarks(loaded: "LoadedScenario") -> Iterator[str]:
    """Remarks on sections and options of the scenario that have no effect on the run."""
    for section in ("sweep", "tune", "plan", "contest"):
        if getattr(loaded.scenario, section) is not None:
            yield f"{loaded.path}: runs without its {section} (see simulate {section})"
    if loaded.scenario.latency.kind == "linear":
        for key in ("model", "hardware"):
            if (key,) in loaded.locations.overridden:
                label = loaded.locations.labels[key,]
                yield f"{label}: changes no step time: latency of kind linear (roofline would)"


def _simulate(built: "BuiltScenario", files: RunFiles, how: HowToRun) -> "RunLog":
    """Simulate, and write the decision log and the timeline page, which is made of it."""
    from tempfile import TemporaryDirectory

    from sim.commands.running.simulate import Simulation, run_built, simulate_here

    simulation: Simulation = simulate_here
    is_ray = how.executor is Backend.RAY
    # Most runs start no worker, and load nothing for them.
    if is_ray or (how.jobs or 1) > 1 or how.ray_address is not None:
        from sim.commands.running.run_parts import in_workers

        simulation = in_workers(built, how.jobs, ray=is_ray, ray_address=how.ray_address)
    with ExitStack() as opened:
        decisions = files.decisions
        if decisions is None and files.timeline is not None:
            decisions = Path(opened.enter_context(TemporaryDirectory())) / "decisions.jsonl"
        log = run_built(
            built,
            fast_forward=how.fast_forward,
            check=how.check,
            decisions=decisions,
            simulation=simulation,
        )
        if files.timeline is not None and decisions is not None:
            from sim.core.files import write_text
            from sim.report.timeline import activity, timeline_page
            from sim.runlog.run_log_file import decision_lines

            steps = activity(decision_lines(decisions))
            write_text(files.timeline, timeline_page(built.loaded.scenario.name, steps))
    return log


def _write_results(
    log: "RunLog",
    built: "BuiltScenario",
    files: RunFiles,
    out: Path | None,
    format_: SummaryFormat | None,
    *,
    is_file: bool,
) -> None:
    """Write the files of a run, print its summary, warn of steps that a profile does not cover."""
    from sim.commands.output import print_line, print_summary
    from sim.commands.running.simulate import summary_with_confidence
    from sim.core.errors import say
    from sim.metrics.client_figures import as_vllm_bench

    format_ = format_ or (SummaryFormat.TABLE if is_file else SummaryFormat.VLLM_BENCH)
    if format_ is SummaryFormat.VLLM_BENCH:
        log = as_vllm_bench(log)
    summary = summary_with_confidence(log, built)
    if files.requests is not None:
        from sim.report.run_folder import write_requests

        write_requests(log, files.requests)
    if files.perfetto is not None:
        from sim.report.perfetto import write_perfetto

        write_perfetto(log, files.perfetto)
    if out is not None:
        from sim.report.run_folder import write_out_dir

        write_out_dir(log, summary, out, built.loaded.raw)
    if format_ is SummaryFormat.JSON:
        from sim.report.run_folder import summary_json

        print_line(summary_json(summary).rstrip())
    elif format_ is SummaryFormat.VLLM_BENCH:
        _print_bench(summary, built.loaded, launch=not is_file)
    else:
        print_summary(summary)
    if "left_range" in log.meta:
        say(f"servetwin: warning: {log.meta['left_range']}")


def _print_bench(summary: "Summary", loaded: "LoadedScenario", *, launch: bool) -> None:
    """Print what `vllm bench serve` prints, below the command that launches such a server."""
    from shlex import quote

    from sim.commands.output import print_line
    from sim.report.client_text import bench_text
    from sim.report.search_tables import launch_lines
    from sim.sweep.result_files import launches_of
    from sim.sweep.tune.space import num_gpus

    for each in launches_of(loaded, {}) if launch else ():
        text = "\n".join(launch_lines(each))
        print_line(text.replace('"$MODEL"', quote(loaded.scenario.model or "$MODEL")))
    print_line(bench_text(summary, num_gpus(loaded)))
