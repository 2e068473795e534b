"""Serves variants of a scenario several times each, on one warm runner, into one file."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from realrun.clock import Budget
from realrun.runner.warm_runner import RunnerOptions
from realrun.server.servable import check_same_runner, say_unused, servable_workload
from realrun.server.serve_workload import (
    RealRun,
    WarmServer,
    warm_server,
)
from realrun.suite.bundle import add_member, member_sizes
from sim.commands.output import print_line
from sim.core.errors import InputError
from sim.core.files import check_target, refuse_input
from sim.metrics.summary import summarise
from sim.report.progress import Progress
from sim.runlog.run_log_file import RecordedRun, load_run_log, write_run_log
from sim.scenario.load import LoadedScenario, load_scenario

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")


@dataclass(frozen=True, slots=True)
class VariantRun:
    """One run of one variant.

    Attributes:
        name: the variant's name.
        repeat: number of this run of the variant, from 1.
        loaded: the scenario with the variant's changes; its name ends with the variant's name.
    """

    name: str
    repeat: int
    loaded: LoadedScenario

    @property
    def log_name(self) -> str:
        return f"{self.name}-{self.repeat}.jsonl.gz"


def variant_runs(
    path: Path, variants: Sequence[str], *, overrides: Sequence[str], repeats: int
) -> list[VariantRun]:
    """All runs: each variant once, then each variant a second time, and so on.

    Args:
        path: the scenario file.
        variants: for each variant its name and `key.path=value` options, separated by spaces.
        overrides: options for all variants; a variant's own options override them.
        repeats: runs of each variant.

    Raises:
        InputError: a name is missing, malformed or used twice, or the scenario is wrong.
    """
    loaded: dict[str, LoadedScenario] = {}
    for variant in variants:
        name, *changes = variant.split() or [""]
        if not _NAME.fullmatch(name):
            raise InputError(
                f"--variant {variant!r}: must begin with a name of small letters, digits, '.', '-'"
            )
        if name in loaded:
            raise InputError(f"--variant {variant!r}: another variant has this name")
        base = load_scenario(path, overrides).scenario.name
        loaded[name] = load_scenario(path, [*overrides, *changes, f"name={base}-{name}"])
    return [
        VariantRun(name, repeat, scenario)
        for repeat in range(1, repeats + 1)
        for name, scenario in loaded.items()
    ]


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
    # Now that everything is read, and before a model is loaded.
    refuse_input(out)
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
