"""Runs a contest into a folder."""

from contextlib import ExitStack
from pathlib import Path

from sim.commands.running.points import run_contest_point
from sim.commands.running.sweeps import prepare_folder
from sim.contest.capacity import find_capacities
from sim.contest.plan import Contest
from sim.contest.results import ContestResults, run_contest
from sim.contest.tables import failure_lines
from sim.core.errors import InputError, say
from sim.report.progress import Estimate, Progress
from sim.sweep.store import POINTS, PointStore, StoredPoints, point_file
from sim.tables.table import counted
from sim.workers.executor import TaskExecutor, code_version
from sim.workers.process_pool import ProcessPool
from sim.workers.ray_cluster import RayCluster


def contest_in(
    out: Path,
    contest: Contest,
    executor: TaskExecutor,
    *,
    jobs: int,
    fresh: bool = False,
    quiet: bool = False,
) -> ContestResults:
    """Run what is not stored in a folder yet; the folder is made if its parent exists.

    With `fresh`, everything runs again; `jobs` is how many runs there are at a time, for the
    estimate of the time left. With `quiet`, nothing is printed.
    """
    prepare_folder(out)
    tell = _nobody if quiet else say
    code = code_version()
    store = PointStore(out / POINTS, code)
    points = StoredPoints(store, executor, run_contest_point, code=code, fresh=fresh)
    section, num_seeds = contest.section, len(contest.seeds)
    unused = store.read(()).unused_in_words()
    tell(
        f"contest: {counted(len(section.contestants), 'contestant')},"
        f" {counted(len(contest.traffic), 'kind')} of traffic,"
        f" {counted(len(section.loads), 'load')}, {counted(num_seeds, 'seed')}:"
        f" {counted(contest.num_runs, 'run')}, and a search for each capacity{unused}"
    )
    try:
        with ExitStack() as stack:
            if isinstance(executor, ProcessPool | RayCluster):
                # Its workers, and the traces that they have read, serve all runs.
                stack.enter_context(executor)
            capacities = find_capacities(contest, points, _nobody)
            tell(f"contest: the capacities are found, with {points.num_run:,} new runs")
            watcher = _nobody if quiet else _Watcher(stack, jobs)
            return run_contest(contest, capacities, points, watcher)
    except (KeyboardInterrupt, InputError):
        if points.num_run:
            tell(
                f"contest: {points.num_run:,} more runs are stored; the same command runs the rest"
            )
        raise


def _nobody(*_: object) -> None:
    """Told instead of a user."""


class _Watcher:
    """Shows how many runs of the contest are done."""

    def __init__(self, stack: ExitStack, jobs: int) -> None:
        self._stack = stack
        self._jobs = jobs
        self._shown: tuple[Estimate, Progress] | None = None
        self._num_before = 0

    def __call__(self, _num_settled: int, num_run: int, num_left: int) -> None:
        if self._shown is None:
            # The first call comes when the first run begins.
            self._num_before = num_run
            progress = self._stack.enter_context(Progress(num_left, text=lambda _: "runs"))
            self._shown = Estimate("contest", self._jobs), progress
        estimate, progress = self._shown
        num_done = num_run - self._num_before
        estimate.update(num_done, num_left)
        progress.update(num_done, 0)


def report_failures(results: ContestResults, out: Path) -> int:
    """Say on stderr which contestants are out; returns the exit code."""
    for (name, reason), (_, outcome) in zip(
        failure_lines(results), results.failures.values(), strict=True
    ):
        where = out / POINTS / point_file(outcome.key)
        say(f"contest: {name} is out: {reason} (its scenario: {where})")
    return 1 if results.failures else 0
