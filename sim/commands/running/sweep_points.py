"""Runs the points of sweeps and searches into a folder, and says which of a sweep failed."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sim.commands.running.simulate import simulate_measured, summary_of
from sim.core.errors import InputError
from sim.core.files import lock_folder, make_directory
from sim.core.messages import say
from sim.des.run import RunOptions
from sim.metrics.summary import Summary, add_quantiles
from sim.report.progress import Estimate, Progress
from sim.scenario.build import build
from sim.scenario.load import LoadedScenario
from sim.sweep.plan import Plan, settings_text
from sim.sweep.result_files import remove_results, write_results
from sim.sweep.results import SweepResults
from sim.sweep.run import StoredPoints
from sim.sweep.store import POINTS, PointStore
from sim.workers.executor import TaskExecutor, TaskStatus, code_version
from sim.workers.process_pool import ProcessPool
from sim.workload.traces.read import TraceReader

_MAX_LISTED = 20


def run_point(loaded: LoadedScenario, read_trace: TraceReader) -> Summary:
    """Simulate a scenario and return its summary, without `wall_seconds`, which no two runs share.

    The summary also has quantiles of latencies, because the run's log is not kept.
    """
    built = build(loaded, read_trace=read_trace)
    log = simulate_measured(built, RunOptions())
    summary = summary_of(log, loaded.scenario)
    del summary["wall_seconds"]
    return add_quantiles(summary, log)


def prepare_folder(out: Path) -> None:
    """Make and lock a folder, and remove earlier results. Raises InputError if that fails."""
    make_directory(out)
    lock_folder(out)
    make_directory(out / POINTS)
    remove_results(out)


@contextmanager
def searched_points(
    out: Path, what: str, planned: str, *, jobs: int, fresh: bool
) -> Iterator[StoredPoints]:
    """The points of a search in a folder that is prepared; an error says how many are stored.

    `what` is the command, and `planned` what it is about to do. With `fresh`, stored points are run
    again, too.
    """
    code = code_version()
    store = PointStore(out / POINTS, code)
    say(f"{what}: {planned}{store.read(()).unused_in_words()}")
    with ProcessPool(jobs) as pool:
        points = StoredPoints(store, pool, run_point, code=code, fresh=fresh)
        try:
            yield points
        except (KeyboardInterrupt, InputError):
            _say_stored(what, points.num_run)
            raise


def _say_stored(what: str, num_points: int) -> None:
    if num_points:
        say(f"{what}: {num_points:,} more points are stored; the same command runs the rest")


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

    The folder is made if its parent exists. With `fresh`, all points run again; with `quiet`,
    nothing is said on stderr; `jobs` is how many points run at a time, for the estimate of the time
    left.
    """
    prepare_folder(out)
    code = code_version()
    store = PointStore(out / POINTS, code)
    points = StoredPoints(store, executor, run_point, code=code, fresh=fresh)
    unused = points.read(plan).unused_in_words()
    estimate = Estimate("sweep", jobs)
    with ExitStack() as stack:
        shown: list[Progress] = []

        def count(_num_settled: int, num_run: int, num_left: int) -> None:
            if not shown:
                say(f"sweep: {len(plan.points):,} points, {num_left:,} to run{unused}")
                shown.append(stack.enter_context(Progress(num_left, text=lambda _: "points")))
            estimate.update(num_run, num_left)
            shown[0].update(num_run, 0)

        try:
            [outcomes] = points.run(plan, [plan.points], (lambda *_: None) if quiet else count)
        except (KeyboardInterrupt, InputError):
            if not quiet:
                _say_stored("sweep", points.num_run)
            raise
    results = SweepResults.of_plan(plan, outcomes)
    write_results(results, out)
    return results


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
