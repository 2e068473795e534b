"""Runs the points of a sweep into a folder, and says which of them failed."""

from collections.abc import Mapping
from pathlib import Path

from sim.commands.sweep_point import run_point
from sim.core.errors import InputError
from sim.core.files import lock_folder, make_directory
from sim.core.messages import say
from sim.report.progress import Estimate, Progress
from sim.sweep.plan import Plan, settings_text
from sim.sweep.points import PointOutcome
from sim.sweep.result_files import remove_results, write_results
from sim.sweep.results import SweepResults
from sim.sweep.run import SweepState, run_sweep, sweep_state
from sim.sweep.store import POINTS, PointStore
from sim.workers.code_version import code_version
from sim.workers.executor import TaskExecutor, TaskStatus

_MAX_LISTED = 20


def sweep_into(
    out: Path,
    plan: Plan,
    executor: TaskExecutor,
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


def _run(
    state: SweepState, store: PointStore, executor: TaskExecutor, jobs: int
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


def warn_of_ranges(results: SweepResults) -> None:
    """Say on stderr that points left the range in which their step times were measured."""
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


def report_failures(results: SweepResults, out: Path) -> int:
    """Say on stderr which points failed; returns the exit code."""
    failed = [
        (number, point)
        for number, point in enumerate(results.points, start=1)
        if point.status != TaskStatus.DONE
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
