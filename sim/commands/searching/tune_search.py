"""Runs the trials of a search for the best settings, and prints what it found."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from sim.commands.output import print_line, print_table
from sim.commands.searching.launch import launches_of
from sim.commands.searching.sweep_points import prepare_folder, searched_points
from sim.core.messages import say
from sim.family.launch_command import LaunchCommand
from sim.report.progress import Estimate, Progress
from sim.report.tune_tables import (
    best_table,
    front_in_words,
    front_table,
    launch_lines,
    method_in_words,
    verdicts,
)
from sim.sweep.plan import settings_text
from sim.sweep.store import POINTS, point_file
from sim.sweep.tune.plan import TunePlan
from sim.sweep.tune.results import TuneResults
from sim.sweep.tune.search import Search, run_tune
from sim.workers.choose import num_cores
from sim.workers.executor import TaskStatus

_MAX_LISTED = 20


def run_in(
    out: Path, plan: TunePlan, search: Search, *, jobs: int | None, fresh: bool
) -> TuneResults:
    """Run the search in a folder, which is made if its parent exists.

    Args:
        out: the folder.
        plan: what is searched.
        search: how.
        jobs: how many workers; None: one for each core.
        fresh: run all points again, even those that are stored.
    """
    prepare_folder(out)
    num_points = plan.num_trials * len(plan.seeds)
    jobs = jobs or num_cores()
    planned = _plan_in_words(plan, num_points)
    with searched_points(out, "tune", planned, jobs=jobs, fresh=fresh) as points:
        estimate = Estimate("tune", jobs)
        with ExitStack() as stack:
            shown: list[tuple[Progress, int]] = []

            def count(num_settled: int, num_run: int) -> None:
                estimate.update(num_run, num_points - num_settled)
                if not shown:
                    # Points that are stored take no time.
                    left = Progress(num_points - num_settled, text=lambda _: "points")
                    shown.append((stack.enter_context(left), num_settled))
                progress, before = shown[0]
                progress.update(num_settled - before, 0)

            return TuneResults.of(plan, run_tune(plan, search, points, count))


def _plan_in_words(plan: TunePlan, num_points: int) -> str:
    text = f"{plan.num_trials:,} trials, {num_points:,} points"
    if plan.is_grid:
        return f"{text}: there are enough trials to run every setting"
    num = plan.space.num_settings
    return f"{text}: a search{'' if num is None else f' of {num:,} settings'}"


def print_results(results: TuneResults, launches: Sequence[LaunchCommand]) -> None:
    print_line(method_in_words(results))
    print_line("")
    print_table(best_table(results))
    print_line("")
    for line in verdicts(results):
        print_line(line)
    if results.ranked():
        print_line("")
        print_line(front_in_words(results))
        print_table(front_table(results))
    for launch in launches:
        print_line("")
        for line in launch_lines(launch):
            print_line(line)


def launches(plan: TunePlan, results: TuneResults) -> list[LaunchCommand]:
    """The winner's launch commands; settings outside of the scheduler's section have no flag."""
    winner = results.winner
    if winner is None:
        return []
    searched = {key: winner.settings[key] for key in plan.space.axes}
    return launches_of(plan.plan.vary(winner.tried), searched)


def warn_of_ranges(results: TuneResults) -> None:
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


def report_failures(results: TuneResults, out: Path) -> bool:
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
