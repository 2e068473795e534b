"""Searches for the cheapest deployments that meet an SLO, and prints how to launch them."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from shlex import quote

from sim.commands.launch import launches_of
from sim.commands.output import print_line, print_table
from sim.commands.sweep_point import run_point
from sim.core.errors import InputError
from sim.core.messages import say
from sim.family.launch_command import LaunchCommand
from sim.report.capacity_tables import (
    certainty_lines,
    deployments_table,
    other_lines,
    plan_in_words,
)
from sim.report.progress import Progress
from sim.report.tune_tables import launch_lines
from sim.sweep.capacity import find_deployments, shown_of
from sim.sweep.capacity_files import settings_of
from sim.sweep.capacity_plan import CapacityPlan
from sim.sweep.deployments import DeploymentVerdict, TriedDeployment
from sim.sweep.plan import canonical
from sim.sweep.store import POINTS, PointStore
from sim.sweep.tune import MemoisedPoints
from sim.workers.code_version import code_version
from sim.workers.process_pool import ProcessPool


class _RoundProgress:
    """Shows the progress of each round in which anything has to run."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._shown: Progress | None = None

    def __call__(self, num_points: int, num_settled: int) -> None:
        if self._shown is None:
            text = "points of this round"
            self._shown = self._stack.enter_context(Progress(num_points, text=lambda _: text))
        self._shown.update(num_settled, 0)
        if num_settled == num_points:
            self._shown.close()
            self._shown = None


def run_in(
    out: Path, capacity: CapacityPlan, *, jobs: int | None, fresh: bool
) -> list[TriedDeployment]:
    """Simulate the candidates in a folder that is prepared.

    Args:
        out: the folder.
        capacity: what is searched.
        jobs: how many workers; None: one for each core.
        fresh: run all points again, even those that are stored.
    """
    store = PointStore(out / POINTS, code_version())
    say(f"plan: {len(capacity.candidates):,} candidates{store.read(()).unused_in_words()}")
    jobs = jobs or len(os.sched_getaffinity(0))
    with ProcessPool(jobs) as pool, ExitStack() as stack:
        points = MemoisedPoints(store, pool, run_point, code=code_version(), fresh=fresh)
        try:
            return find_deployments(capacity, points, _RoundProgress(stack))
        except (KeyboardInterrupt, InputError):
            if points.num_run:
                say(
                    f"plan: {points.num_run:,} more points are stored;"
                    " the same command goes on from there"
                )
            raise


def print_results(
    path: Path,
    overrides: Sequence[str],
    capacity: CapacityPlan,
    deployments: Sequence[TriedDeployment],
    launches: Sequence[LaunchCommand],
) -> None:
    """Print the deployments that meet the SLO, and the commands that run the first again."""
    shown = [one for one in deployments if one.verdict is DeploymentVerdict.MEETS]
    shown = shown_of(capacity, shown)
    print_line(plan_in_words(capacity))
    if not shown:
        print_line("No deployment meets the SLO.")
    else:
        print_line("")
        print_table(deployments_table(capacity, shown))
        print_line("")
        for line in certainty_lines(capacity, shown):
            print_line(line)
    others = list(other_lines(capacity, deployments))
    if others:
        print_line("")
    for line in others:
        print_line(line)
    if shown:
        print_line("")
        print_line("The first one, simulated again:")
        print_line(_run_command(path, overrides, capacity, shown[0]))
        num, router = shown[0].replicas, capacity.plan.base.scenario.router.kind
        if shown[0].candidate.decoders is None:
            print_line(
                "One server." if num == 1 else f"{num} servers behind a router ({router}), each:"
            )
        for line in (line for launch in launches for line in launch_lines(launch)):
            print_line(line)


def _run_command(
    path: Path, overrides: Sequence[str], capacity: CapacityPlan, best: TriedDeployment
) -> str:
    """The command that runs the deployment alone."""
    settings = settings_of(capacity, best)
    texts = [*overrides, *(f"{key}={canonical(value)}" for key, value in settings.items())]
    options = [f"--set {quote(text)}" for text in texts]
    return " ".join(["simulate run", quote(str(path)), *options])


def launches(capacity: CapacityPlan, best: TriedDeployment) -> list[LaunchCommand]:
    """The launch command of each replica, or of the servers of each pool and their router."""
    return launches_of(capacity.plan.vary(settings_of(capacity, best)), best.candidate.tried)
