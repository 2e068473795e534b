"""Runs the points of sweeps and searches into a folder, and prints what they found."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sim.commands.output import print_line, print_table
from sim.commands.running.points import run_point
from sim.core.errors import InputError, say
from sim.core.files import lock_folder, make_folder
from sim.family.launch_command import LaunchCommand
from sim.report.progress import Estimate, Progress
from sim.report.search_tables import (
    best_table,
    confidence_of_best,
    front_in_words,
    front_table,
    launch_lines,
    method_in_words,
    verdicts,
)
from sim.sweep.plan import Plan, settings_text
from sim.sweep.result_files import (
    launches_of,
    remove_results,
    write_results,
    write_search_results,
)
from sim.sweep.results import SweepResults
from sim.sweep.store import POINTS, PointStore, StoredPoints, point_file
from sim.sweep.tune.files import tune_json, tune_rows
from sim.sweep.tune.plan import TunePlan
from sim.sweep.tune.results import TuneResults
from sim.sweep.tune.search import Search, run_tune
from sim.workers.choose import num_cores
from sim.workers.executor import TaskExecutor, TaskStatus, code_version
from sim.workers.process_pool import ProcessPool

_MAX_LISTED = 20


def prepare_folder(out: Path) -> None:
    """Make and lock a folder, and remove earlier results. Raises InputError if that fails."""
    make_folder(out)
    lock_folder(out)
    make_folder(out / POINTS)
    remove_results(out)


@contextmanager
def searched_points(
    out: Path, what: str, planned: str, *, jobs: int, fresh: bool, quiet: bool
) -> Iterator[StoredPoints]:
    """The points of a search in a folder that is prepared; an error says how many are stored.

    `what` is the command, and `planned` what it is about to do, which is not said with `quiet`.
    With `fresh`, stored points are run again, too.
    """
    code = code_version()
    store = PointStore(out / POINTS, code)
    if not quiet:
        say(f"{what}: {planned}{store.read(()).unused_in_words()}")
    with ProcessPool(jobs) as pool:
        points = StoredPoints(store, pool, run_point, code=code, fresh=fresh)
        try:
            yield points
        except (KeyboardInterrupt, InputError):
            if not quiet:
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


def tune_in(
    out: Path,
    plan: TunePlan,
    search: Search,
    *,
    jobs: int | None,
    fresh: bool,
    quiet: bool = False,
) -> TuneResults:
    """Run the search in a folder, which is made if its parent exists.

    Without `jobs` there is a worker for each core. With `fresh`, stored points are run again, too;
    with `quiet`, nothing is said on stderr.
    """
    prepare_folder(out)
    num_points = plan.num_trials * len(plan.seeds)
    jobs = jobs or num_cores()
    planned = _plan_in_words(plan, num_points)
    with searched_points(out, "tune", planned, jobs=jobs, fresh=fresh, quiet=quiet) as points:
        estimate = Estimate("tune", jobs)
        with ExitStack() as stack:
            shown: list[tuple[Progress, int]] = []

            def count(num_settled: int, num_run: int, _num_left: int) -> None:
                estimate.update(num_run, num_points - num_settled)
                if not shown:
                    # Points that are stored take no time.
                    left = Progress(num_points - num_settled, text=lambda _: "points")
                    shown.append((stack.enter_context(left), num_settled))
                progress, before = shown[0]
                progress.update(num_settled - before, 0)

            watcher = (lambda *_: None) if quiet else count
            return TuneResults.of(plan, run_tune(plan, search, points, watcher))


def _plan_in_words(plan: TunePlan, num_points: int) -> str:
    text = f"{plan.num_trials:,} trials, {num_points:,} points"
    if plan.is_grid:
        return f"{text}: there are enough trials to run every setting"
    num = plan.space.num_settings
    return f"{text}: a search{'' if num is None else f' of {num:,} settings'}"


def print_tune(results: TuneResults, launches: Sequence[LaunchCommand]) -> None:
    print_line(f"{method_in_words(results)}\n")
    print_table(best_table(results))
    print_line("\n".join(["", *verdicts(results), *confidence_of_best(results)]))
    if results.ranked():
        print_line(f"\n{front_in_words(results)}")
        print_table(front_table(results))
    for launch in launches:
        print_line("\n".join(["", *launch_lines(launch)]))


def launches_of_winner(plan: TunePlan, results: TuneResults) -> list[LaunchCommand]:
    """The winner's launch commands; settings outside of the scheduler's section have no flag."""
    winner = results.winner
    if winner is None:
        return []
    searched = {key: winner.settings[key] for key in plan.space.axes}
    return launches_of(plan.plan.vary(winner.tried), searched)


def write_tune(
    out: Path, plan: TunePlan, results: TuneResults, launches: Sequence[LaunchCommand]
) -> str:
    """Write the results of a search for settings; returns the text of results.json."""
    text = tune_json(results, launches, plan.plan.base.raw)
    write_search_results(tune_rows(results), text, out)
    return text


def warn_of_trials(results: TuneResults) -> None:
    left = [
        trial.trial
        for trial in results.trials
        if any("left_range" in (outcome.result or {}) for outcome in trial.outcomes)
    ]
    if left:
        winner = results.winner
        who = "the winner too" if winner is not None and winner.trial in left else "not the winner"
        say(
            f"tune: warning: {len(left):,} trials left the range in which their step times were"
            f" measured, {who}; the first is trial {left[0]}: see left_range in its points"
        )


def report_trials(results: TuneResults, out: Path) -> bool:
    """List the trials without results; returns whether any of them failed when it was run."""
    without = [trial for trial in results.trials if trial.sought is None]
    for trial in without[:_MAX_LISTED]:
        values = settings_text(trial.tried)
        keys = [outcome.key for outcome in trial.outcomes if outcome.status is not TaskStatus.DONE]
        where = f" (its scenario: {out / POINTS / point_file(keys[0])})" if keys else ""
        what = "failed" if keys else "is not valid"
        say(f"tune: trial {trial.trial} {what} ({values}): {trial.error}{where}")
    if len(without) > _MAX_LISTED:
        say(f"tune: {len(without) - _MAX_LISTED:,} more trials: see {out / 'results.csv'}")
    return any(trial.outcomes for trial in without)
