"""Search for the best settings or the cheapest deployments, and hold contests, from Python."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from servetwin.errors import with_one_line_errors
from servetwin.html import frames, html_of
from servetwin.scenario import Scenario, Settings, Source, scenario_of
from sim.commands.running import contests, plans, sweeps
from sim.contest.plan import plan_contest
from sim.contest.results import ContestResults
from sim.contest.tables import card_table, overview_lines, overview_table, where_lines
from sim.core.errors import InputError, unknown_name
from sim.family.launch_command import LaunchCommand
from sim.report.capacity_tables import certainty_lines, deployments_table, plan_in_words
from sim.report.memory_tables import memory_lines
from sim.report.search_tables import best_table, method_in_words, verdicts
from sim.scenario.build import check_packages
from sim.sweep.capacity.deployments import TriedDeployment, plan_rows, settings_of
from sim.sweep.capacity.front import TriedLoad, load_rows
from sim.sweep.capacity.plan import CapacityPlan, plan_capacity
from sim.sweep.capacity.search import shown_of
from sim.sweep.tune.files import tune_rows
from sim.sweep.tune.plan import plan_tune
from sim.sweep.tune.results import TuneResults
from sim.sweep.tune.search import search_of
from sim.tables.table import Table, fitted
from sim.workers.choose import choose_executor, num_cores

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


def _text(heading: str, table: Table | None, remarks: Sequence[str]) -> str:
    parts = [] if table is None else fitted(table)
    return "\n".join([heading, *(line for part in parts for line in ("", *part.lines())), *remarks])


@dataclass(frozen=True, eq=False, repr=False)
class PlanResult:
    """The deployments of a plan; `print` shows those that meet the SLO.

    Attributes:
        capacity: the plan, as the modules of `sim.report` take it.
        deployments: every candidate with what was found out about it, the best first.
        loads: every deployment and load that was simulated.
        launches: by scheduler family, the commands that launch its cheapest servers.
    """

    capacity: CapacityPlan
    deployments: Sequence[TriedDeployment]
    loads: Sequence[TriedLoad]
    launches: Mapping[str, Sequence[LaunchCommand]]

    @cached_property
    def frame(self) -> "DataFrame":
        """One row for each candidate, as in `results.csv` of `simulate plan`."""
        found: DataFrame = frames().frame_of_rows(plan_rows(self.capacity, self.deployments))
        return found

    @cached_property
    def front(self) -> "DataFrame":
        """Tokens/s for each user and of each GPU: one row for each deployment and load tried."""
        found: DataFrame = frames().frame_of_rows(load_rows(self.capacity, self.loads))
        return found

    @property
    def best(self) -> Scenario | None:
        """The scenario of the cheapest deployment, which `run` runs; None: none meets the SLO."""
        if not self._shown:
            return None
        return Scenario(self.capacity.plan.vary(settings_of(self.capacity, self._shown[0])))

    @cached_property
    def _shown(self) -> Sequence[TriedDeployment]:
        return shown_of(self.capacity, self.deployments)

    @property
    def _table(self) -> Table | None:
        return deployments_table(self.capacity, self._shown) if self._shown else None

    @property
    def _remarks(self) -> list[str]:
        if not self._shown:
            return ["No deployment meets the SLO."]
        lines = certainty_lines(self.capacity, self._shown)
        return [*lines, *memory_lines(self.capacity, self.deployments)]

    def __repr__(self) -> str:
        return _text(plan_in_words(self.capacity), self._table, self._remarks)

    def _repr_html_(self) -> str:
        tables = [table for table in (self._table,) if table is not None]
        return html_of(plan_in_words(self.capacity), tables, self._remarks)


@dataclass(frozen=True, eq=False, repr=False)
class TuneResult:
    """The trials of a search for settings; `print` shows the best.

    Attributes:
        results: the trials, as the modules of `sim.report` take them.
        launches: the commands that launch a server with the winner's settings.
    """

    results: TuneResults
    launches: Sequence[LaunchCommand]

    @cached_property
    def frame(self) -> "DataFrame":
        """One row for each trial, as in `results.csv` of `simulate tune`."""
        found: DataFrame = frames().frame_of_rows(tune_rows(self.results))
        return found

    @property
    def winner(self) -> Settings | None:
        """The best settings by key path; None: no setting meets the conditions."""
        winner = self.results.winner
        return None if winner is None else dict(winner.tried)

    def __repr__(self) -> str:
        results = self.results
        return _text(method_in_words(results), best_table(results), verdicts(results))

    def _repr_html_(self) -> str:
        results = self.results
        return html_of(method_in_words(results), [best_table(results)], verdicts(results))


@dataclass(frozen=True, eq=False, repr=False)
class ContestResult:
    """What a contest found; `print` shows how each contestant differs from the reference.

    Attributes:
        results: the contest, as the modules of `sim.contest` take it.
    """

    results: ContestResults

    @cached_property
    def frame(self) -> "DataFrame":
        """One row for each contestant, traffic and load, as in `contest.csv`."""
        from sim.contest.files import contest_rows

        found: DataFrame = frames().frame_of_rows(list(contest_rows(self.results)))
        return found

    def card(self, name: str) -> str:
        """A contestant's card: its differences by traffic, and where it is better or worse.

        Raises:
            InputError: there is no such contestant, it is the reference, or it is out.
        """
        known = self.results.challengers
        if name not in known:
            raise InputError(unknown_name("contestant", name, known))
        return _text(name, card_table(self.results, name), list(where_lines(self.results, name)))

    @with_one_line_errors
    def plot(self, wait: str = "p99_ttft_ms") -> "Figure":
        """The cache hit rate against a wait, under each traffic.

        Args:
            wait: `p99_ttft_ms`, or `max_wait_ms`, the longest wait for a first batch.

        Raises:
            InputError: there is no such picture: of another metric, or if nothing was cached.
        """
        from sim.contest.pictures import draw_contest
        from sim.report.figures.render import matplotlib_figure

        drawn = draw_contest(self.results)
        if wait not in drawn:
            raise InputError(unknown_name("picture", wait, drawn))
        return matplotlib_figure(drawn[wait].picture)

    @property
    def _table(self) -> Table:
        return overview_table(self.results, self.results.usual_load)

    def __repr__(self) -> str:
        facts, *remarks = overview_lines(self.results)
        return _text(f"{facts}\n{self._table.title}:", self._table, remarks)

    def _repr_html_(self) -> str:
        facts, *remarks = overview_lines(self.results)
        return html_of(f"{facts}. {self._table.title}:", [self._table], remarks)


@contextmanager
def _folder(out: Path | str | None, jobs: int | None) -> Iterator[Path]:
    """The folder for points: `out`, which is kept, or a temporary one.

    Raises:
        InputError: `jobs` is below 1.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs: must be at least 1, got {jobs}")
    if out is not None:
        yield Path(out)
        return
    with TemporaryDirectory(prefix="servetwin-") as folder:
        yield Path(folder)


@with_one_line_errors
def plan(
    scenario: Source,
    settings: Settings | None = None,
    *,
    jobs: int | None = None,
    out: Path | str | None = None,
) -> PlanResult:
    """Find the cheapest deployments that meet the SLO of a scenario with a `plan` section.

    Args:
        scenario: as for `run`.
        settings: values by key path; `plan` may be among them.
        jobs: how many processes; None: one for each core.
        out: a folder for points and results, as `simulate plan --out` writes it; points that it has
            are not run again. None: nothing is kept on disk.

    Raises:
        InputError: the section is invalid, or the folder cannot be used.
    """
    capacity = plan_capacity(scenario_of(scenario, settings).loaded)
    check_packages(capacity.plan.base)
    with _folder(out, jobs) as folder:
        sweeps.prepare_folder(folder)
        found = plans.plan_in(folder, capacity, jobs=jobs, fresh=False, quiet=True)
        _, launches = plans.write_plan(folder, capacity, found)
    return PlanResult(capacity, found.deployments, found.loads, launches)


@with_one_line_errors
def tune(
    scenario: Source,
    settings: Settings | None = None,
    *,
    jobs: int | None = None,
    out: Path | str | None = None,
) -> TuneResult:
    """Search the ranges of a scenario's `tune` section for the best settings.

    Args:
        scenario: as for `run`.
        settings: values by key path; `tune` may be among them.
        jobs: how many processes; None: one for each core.
        out: a folder for points and results, as `simulate tune --out` writes it; points that it has
            are not run again. None: nothing is kept on disk.

    Raises:
        InputError: the section is invalid, or the folder cannot be used.
    """
    asked = plan_tune(scenario_of(scenario, settings).loaded)
    check_packages(asked.plan.base)
    search = search_of(asked)
    with _folder(out, jobs) as folder:
        results = sweeps.tune_in(folder, asked, search, jobs=jobs, fresh=False, quiet=True)
        launches = sweeps.launches_of_winner(asked, results)
        sweeps.write_tune(folder, asked, results, launches)
    return TuneResult(results, launches)


@with_one_line_errors
def contest(
    scenario: Source,
    settings: Settings | None = None,
    *,
    jobs: int | None = None,
    out: Path | str | None = None,
) -> ContestResult:
    """Let the contestants of a scenario's `contest` section compete under the same traffic.

    Args:
        scenario: as for `run`.
        settings: values by key path; `contest` may be among them.
        jobs: how many processes; None: one for each core.
        out: a folder for points and results, as `simulate contest --out` writes it; points that it
            has are not run again. None: nothing is kept on disk.

    Raises:
        InputError: the section is invalid, the folder cannot be used, or the reference fails.
    """
    planned = plan_contest(scenario_of(scenario, settings).loaded)
    for base in planned.plan.bases.values():
        check_packages(base)
    with _folder(out, jobs) as folder:
        workers = choose_executor(jobs, ray=False, ray_address=None)
        results = contests.contest_in(
            folder, planned, workers, jobs=jobs or num_cores(), quiet=True
        )
        if out is not None:
            from sim.contest.files import write_contest

            write_contest(results, folder)
    return ContestResult(results)
