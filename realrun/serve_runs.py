"""Serves variants of a scenario several times each, on one warm runner, into one file."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from realrun.budget import Budget
from realrun.commands.unused import say_unused
from realrun.serve import (
    RealRun,
    WarmServer,
    check_same_runner,
    servable_workload,
    warm_server,
)
from realrun.suite.bundle import add_member, member_sizes
from realrun.variants import VariantRun
from realrun.warm_runner import RunnerOptions
from sim.commands.output import print_line
from sim.core.errors import InputError
from sim.core.files import check_target
from sim.metrics.summary import summarise
from sim.report.progress import Progress
from sim.runlog.run_log_file import RecordedRun, load_run_log, write_run_log

_MIB = 1 << 20


def serve_runs(
    wanted: Sequence[VariantRun],
    out: Path,
    *,
    options: RunnerOptions,
    budget: Budget,
    max_bytes: int | None = None,
) -> bool:
    """Serve all runs that the bundle `out` lacks; returns whether the bundle is now complete.

    A log is added to the bundle when its run has ended. A run starts only if the longest run so
    far would fit into the rest of the budget.

    Raises:
        InputError: a scenario or the device is wrong, or the bundle is damaged, cannot be written
            or would become larger than `max_bytes`.
    """
    check_target(out)
    for run in wanted:
        if run.repeat == 1:
            servable_workload(run.loaded)
            check_same_runner(wanted[0].loaded, run.loaded)
    say_unused(*(run.loaded for run in wanted))
    known = member_sizes(out)
    left = [run for run in wanted if _member(out, run) not in known]
    if left:
        with warm_server(left[0].loaded, options) as server:
            left = _serve_all(server, left, out, budget, max_bytes)
    print_line(f"{len(wanted) - len(left)} of {len(wanted)} runs are in {out}")
    return not left


def _serve_all(
    server: WarmServer,
    left: list[VariantRun],
    out: Path,
    budget: Budget,
    max_bytes: int | None,
) -> list[VariantRun]:
    """Serve runs in order; returns the runs for which the time was too short."""
    longest_s = 0.0
    for number, run in enumerate(left):
        if budget.left_s() <= longest_s:
            return left[number:]
        _check_room(out, max_bytes)
        begin_s = budget.clock()
        done = _serve(server, run)
        with TemporaryDirectory() as folder:
            log = Path(folder) / run.log_name
            write_run_log(log, done.meta | {"variant": run.name, "repeat": run.repeat}, done.lines)
            add_member(out, _member(out, run), log.read_bytes())
        print_line(f"{run.name} {run.repeat}: {_in_words(done)}")
        longest_s = max(longest_s, budget.clock() - begin_s)
    return []


def _check_room(out: Path, max_bytes: int | None) -> None:
    """Raises InputError, before the next run, if another log of the largest size would not fit."""
    sizes = member_sizes(out).values()
    if max_bytes is not None and sizes and sum(sizes) + max(sizes) > max_bytes:
        raise InputError(
            f"{out}: one more log could make it larger than {max_bytes / _MIB:.0f} MiB;"
            " serve fewer variants, or shorter runs"
        )


def _serve(server: WarmServer, run: VariantRun) -> RealRun:
    workload = servable_workload(run.loaded)
    with Progress(workload.num_requests) as progress:
        return server.serve(run.loaded, workload, watcher=progress.update)


def _member(out: Path, run: VariantRun) -> str:
    """The log's path in the bundle: a folder with the bundle's name, then the log's name."""
    return f"{out.stem}/{run.log_name}"


def _in_words(done: RealRun) -> str:
    summary = summarise(load_run_log(RecordedRun.of_lines(done.meta, done.lines)))
    parts = (
        ("completed", "{:,} requests"),
        ("duration", "{:.1f} s"),
        ("output_throughput", "{:,.0f} tokens/s"),
        ("mean_ttft_ms", "TTFT {:.1f} ms"),
        ("mean_tpot_ms", "TPOT {:.2f} ms"),
        ("cache_hit_rate_pct", "{:.1f} % cached"),
    )
    return ", ".join(form.format(summary[key]) for key, form in parts if summary[key] is not None)
