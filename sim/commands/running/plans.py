"""Runs a search for deployments into a folder, and prints what it found."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from shlex import quote

from sim.commands.output import print_line, print_table
from sim.commands.running.sweeps import searched_points
from sim.family.launch_command import LaunchCommand
from sim.report.capacity_tables import (
    certainty_lines,
    deployments_table,
    front_lines,
    front_rows,
    loads_table,
    other_lines,
    plan_in_words,
)
from sim.report.memory_tables import memory_lines
from sim.report.progress import Progress
from sim.report.search_tables import launch_lines
from sim.sweep.capacity.deployments import (
    DeploymentVerdict,
    TriedDeployment,
    plan_json,
    plan_rows,
    settings_of,
)
from sim.sweep.capacity.front import load_rows
from sim.sweep.capacity.plan import CapacityPlan
from sim.sweep.capacity.search import FoundDeployments, find_deployments, shown_of
from sim.sweep.plan import canonical
from sim.sweep.result_files import FRONT, launches_of, write_search_results
from sim.tables.table import table_of_rows
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


def plan_in(
    out: Path, capacity: CapacityPlan, *, jobs: int | None, fresh: bool, quiet: bool = False
) -> FoundDeployments:
    """Simulate the candidates in a folder that is prepared; the arguments are as for a sweep."""
    planned = f"{len(capacity.candidates):,} candidates"
    workers = jobs or num_cores()
    with (
        searched_points(out, "plan", planned, jobs=workers, fresh=fresh, quiet=quiet) as points,
        ExitStack() as stack,
    ):
        watcher = (lambda *_: None) if quiet else _RoundProgress(stack)
        return find_deployments(capacity, points, watcher)


def print_plan(
    path: Path,
    overrides: Sequence[str],
    capacity: CapacityPlan,
    found: FoundDeployments,
    launches: dict[str, list[LaunchCommand]],
) -> None:
    """Print the deployments that meet the SLO, and the commands that run the first again.

    `launches` has, by family, the commands of its best servers.
    """
    launches, deployments = dict(launches), found.deployments
    shown = shown_of(capacity, deployments)
    print_line(plan_in_words(capacity))
    if not shown:
        limit = capacity.section.max_kw
        within = "" if limit is None else f" within {limit:g} kW"
        print_line(f"No deployment meets the SLO{within}.")
    else:
        print_line("")
        print_table(deployments_table(capacity, shown))
        lines = certainty_lines(capacity, shown)
        print_line("\n".join(["", *lines, *memory_lines(capacity, deployments)]))
    loads = load_rows(capacity, found.loads)
    for line in front_lines(loads):
        print_line(f"\n{line}")
        print_table(loads_table(loads))
    others = list(other_lines(capacity, deployments))
    if others:
        print_line("\n".join(["", *others]))
    if shown:
        print_line("\nThe first one, simulated again:")
        print_line(_run_command(path, overrides, capacity, shown[0]))
        for number, one in enumerate(shown, start=1):
            for line in _launch_lines(
                capacity, number, one, launches.pop(one.candidate.family, ())
            ):
                print_line(line)


def _launch_lines(
    capacity: CapacityPlan, number: int, one: TriedDeployment, launches: Sequence[LaunchCommand]
) -> Iterator[str]:
    """How to launch the servers of a row of the table; none if there are no commands."""
    if not launches:
        return
    if number > 1:
        best = "best" if capacity.is_for_load else "cheapest"
        yield f"\nRow {number}, the {best} with {one.candidate.family}:"
    if one.candidate.decoders is None:
        router = capacity.plan.vary(settings_of(capacity, one)).scenario.router.kind
        several = f"{one.replicas} servers behind a router ({router}), each:"
        yield "One server." if one.replicas == 1 else several
    for launch in launches:
        yield from launch_lines(launch)


def _run_command(
    path: Path, overrides: Sequence[str], capacity: CapacityPlan, best: TriedDeployment
) -> str:
    """The command that runs the deployment alone."""
    settings = settings_of(capacity, best)
    texts = [*overrides, *(f"{key}={canonical(value)}" for key, value in settings.items())]
    options = [f"--set {quote(text)}" for text in texts]
    return " ".join(["simulate run", quote(str(path)), *options])


def write_plan(
    out: Path, capacity: CapacityPlan, found: FoundDeployments
) -> tuple[str, dict[str, list[LaunchCommand]]]:
    """Write the results; returns their text, and how to launch the best servers of each family."""
    launches: dict[str, list[LaunchCommand]] = {}
    for one in found.deployments:
        if one.verdict is DeploymentVerdict.MEETS and one.candidate.family not in launches:
            varied = capacity.plan.vary(settings_of(capacity, one))
            # A router is no setting of a server.
            tried = {key: value for key, value in one.candidate.tried.items() if key != "router"}
            launches[one.candidate.family] = launches_of(varied, tried)
    loads = load_rows(capacity, found.loads)
    text = plan_json(capacity, found.deployments, launches, loads, plan_in_words(capacity))
    if front := front_rows(loads):
        table_of_rows(front).write_csv(out / FRONT)
    write_search_results(plan_rows(capacity, found.deployments), text, out)
    return text, launches


def plan_exit_code(deployments: Sequence[TriedDeployment]) -> int:
    """1 if a candidate failed, or none meets the SLO."""
    verdicts = {one.verdict for one in deployments}
    meets = DeploymentVerdict.MEETS in verdicts
    return 1 if DeploymentVerdict.FAILED in verdicts or not meets else 0
