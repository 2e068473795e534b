"""`simulate sweep`: runs every point of a scenario's sweep, stores it, and prints a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.commands.output import ResultFiles, print_line, print_table
from sim.commands.report_section import check_report_section
from sim.commands.sweep_point import run_point
from sim.core.errors import InputError
from sim.core.files import make_directory
from sim.core.inputs import lock_folder
from sim.core.say import say
from sim.core.stdin import name_of
from sim.report.progress import Estimate, Progress
from sim.report.same_rows import same_rows
from sim.report.sweep_tables import sweep_table
from sim.scenario.build import check_packages
from sim.scenario.load import load_scenario
from sim.sweep.plan import Plan, plan_sweep, settings_text
from sim.sweep.points import PointOutcome
from sim.sweep.result_files import remove_results, sweep_json, write_results
from sim.sweep.results import SweepResults
from sim.sweep.run import SweepState, run_sweep, sweep_state
from sim.sweep.store import POINTS, PointStore
from sim.workers.choose import choose_executor, num_cores
from sim.workers.code_version import code_version
from sim.workers.executor import Executor, Status

_MAX_LISTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """How to sweep. No option changes the results.

    Attributes:
        jobs: how many workers; None: one for each core.
        ray: run points on Ray, instead of processes of this machine.
        ray_address: the address of a Ray cluster; None: a cluster on this machine.
        out: the folder of points and results; None: `FILE-sweep` in the current folder.
        fresh: run all points again, even those that are stored.
        json: print the results as JSON, not as a table.
    """

    jobs: int | None = None
    ray: bool = False
    ray_address: str | None = None
    out: Path | None = None
    fresh: bool = False
    json: bool = False


def sweep(path: Path, overrides: Sequence[str], options: SweepOptions) -> int:
    """Run the points of the scenario's sweep that are not stored yet; print a row for each setting.

    Returns:
        the exit code: 1 if a point failed.

    Raises:
        InputError: the scenario or one of its points is invalid, or the output folder cannot be
            used.
    """
    plan = plan_sweep(load_scenario(path, overrides))
    check_packages(plan.base)
    check_report_section(plan.base, plan)
    executor = choose_executor(options.jobs, ray=options.ray, ray_address=options.ray_address)
    out = Path(f"{name_of(path)}-sweep") if options.out is None else options.out
    ResultFiles(directory=out).check(path)
    results = sweep_into(out, plan, executor, fresh=options.fresh, jobs=_jobs(options))
    if options.json:
        print_line(sweep_json(results).rstrip())
    else:
        print_table(sweep_table(results))
        for sentence in same_rows(results):
            print_line(sentence)
    _warn_of_ranges(results)
    return _report_failures(results, out)


def sweep_into(
    out: Path,
    plan: Plan,
    executor: Executor,
    *,
    fresh: bool = False,
    quiet: bool = False,
    jobs: int = 1,
) -> SweepResults:
    """Run the points that are not stored in a folder yet, and write all results there.

    Args:
        out: the folder; it is made if its parent exists.
        plan: the sweep.
        executor: what runs the points.
        fresh: run all points again.
        quiet: say nothing on stderr.
        jobs: how many points run at the same time, for the estimate of the time.

    Raises:
        InputError: the folder or the executor cannot be used.
    """
    make_directory(out)
    lock_folder(out)
    make_directory(out / POINTS)
    code = code_version()
    store = PointStore(out / POINTS, code)
    state = sweep_state(plan, store, code=code, fresh=fresh)
    remove_results(out)
    if quiet:
        outcomes = run_sweep(state, store, executor, run_point)
    else:
        outcomes = _run(state, store, executor, jobs)
    results = SweepResults.of_plan(plan, (outcomes[key] for key in state.keys))
    write_results(results, out)
    return results


def _jobs(options: SweepOptions) -> int:
    return options.jobs or num_cores()


def _run(
    state: SweepState, store: PointStore, executor: Executor, jobs: int
) -> Mapping[str, PointOutcome]:
    say(f"sweep: {_plan_in_words(state)}")
    num_done, num_all = 0, len(state.missing)
    estimate = Estimate("sweep", jobs)

    def count(done: int) -> None:
        nonlocal num_done
        num_done = done
        estimate.update(done, num_all - done)
        progress.update(done, 0)

    with Progress(num_all, text=lambda _: "points") as progress:
        try:
            return run_sweep(state, store, executor, run_point, count)
        except (KeyboardInterrupt, InputError):
            if num_done:
                say(f"sweep: {num_done:,} more points are stored; the same command runs the rest")
            raise


def _plan_in_words(state: SweepState) -> str:
    text = f"{len(state.plan.points):,} points, {len(state.missing):,} to run"
    return text + state.stored.unused_in_words()


def _warn_of_ranges(results: SweepResults) -> None:
    left = [
        number
        for number, point in enumerate(results.points, start=1)
        if (point.summary or {}).get("left_range")
    ]
    if left:
        say(
            f"sweep: warning: {len(left):,} points left the range in which their step times were"
            f" measured; the first is point {left[0]}: see left_range in the results"
        )


def _report_failures(results: SweepResults, out: Path) -> int:
    failed = [
        (number, point)
        for number, point in enumerate(results.points, start=1)
        if point.status != Status.DONE
    ]
    for number, point in failed[:_MAX_LISTED]:
        values = {key: point.values[key] for key in results.keys}
        say(
            f"sweep: point {number} of {len(results.points)} failed ({settings_text(values)}):"
            f" {point.message} (its scenario: {out / POINTS / point.file})"
        )
    if len(failed) > _MAX_LISTED:
        say(f"sweep: {len(failed) - _MAX_LISTED:,} more points failed: see {out / 'results.csv'}")
    return 1 if failed else 0
