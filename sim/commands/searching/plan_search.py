"""Searches for the cheapest deployments that meet an SLO, and prints how to launch them."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from shlex import quote

from sim.commands.output import print_line, print_table
from sim.commands.searching.launch import launches_of
from sim.commands.searching.sweep_points import searched_points
from sim.family.launch_command import LaunchCommand
from sim.report.capacity_tables import (
    certainty_lines,
    deployments_table,
    other_lines,
    plan_in_words,
)
from sim.report.progress import Progress
from sim.report.tune_tables import launch_lines
from sim.sweep.capacity.deployments import (
    DeploymentVerdict,
    TriedDeployment,
    plan_json,
    plan_rows,
    settings_of,
)
from sim.sweep.capacity.plan import CapacityPlan
from sim.sweep.capacity.search import find_deployments, shown_of
from sim.sweep.plan import canonical
from sim.sweep.result_files import write_search_results
from sim.workers.choose import num_cores


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
    """Simulate the candidates in a folder that is prepared; the arguments are as for a sweep."""
    planned = f"{len(capacity.candidates):,} candidates"
    workers = jobs or num_cores()
    with (
        searched_points(out, "plan", planned, jobs=workers, fresh=fresh) as points,
        ExitStack() as stack,
    ):
        return find_deployments(capacity, points, _RoundProgress(stack))


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


def write_results(
    out: Path, capacity: CapacityPlan, deployments: Sequence[TriedDeployment]
) -> tuple[str, list[LaunchCommand]]:
    """Write the results; returns their text, and how to launch the servers of the best one."""
    best = deployments[0] if deployments else None
    launches: list[LaunchCommand] = []
    if best is not None and best.verdict is DeploymentVerdict.MEETS:
        varied = capacity.plan.vary(settings_of(capacity, best))
        launches = launches_of(varied, best.candidate.tried)
    text = plan_json(capacity, deployments, launches)
    write_search_results(plan_rows(capacity, deployments), text, out)
    return text, launches


def exit_code(deployments: Sequence[TriedDeployment]) -> int:
    """1 if a candidate failed, or none meets the SLO."""
    verdicts = {one.verdict for one in deployments}
    meets = DeploymentVerdict.MEETS in verdicts
    return 1 if DeploymentVerdict.FAILED in verdicts or not meets else 0
