"""Run every combination of a scenario's settings, and what that results in."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from servetwin.errors import with_one_line_errors
from servetwin.html import frames, html_of
from servetwin.scenario import Settings, Source, scenario_of
from sim.commands.running.sweeps import sweep_into
from sim.core.errors import InputError
from sim.report.plots import check_report_section
from sim.report.sweep_tables import (
    same_rows,
    setting_rows,
    sweep_basis,
    sweep_intervals,
    sweep_table,
)
from sim.scenario.build import check_packages
from sim.sweep.plan import plan_sweep
from sim.sweep.result_files import point_rows
from sim.sweep.results import SweepResults
from sim.tables.table import fitted
from sim.workers.executor import TaskExecutor, ThisProcess
from sim.workers.process_pool import ProcessPool

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_MAX_TEXT_ROWS, _MAX_HTML_ROWS = 12, 50


@dataclass(frozen=True, eq=False, repr=False)
class SweepResult:
    """A sweep: a row for each setting, and one for each point.

    Attributes:
        results: the settings and summaries of all points, as the modules of `sim.report` take them.
    """

    results: SweepResults

    @cached_property
    def frame(self) -> "DataFrame":
        """One row for each setting: the swept values, `runs`, and metrics as means over the seeds.

        From three seeds on, a column such as `p99_ttft_ms_half_width` has half of the mean's 95 %
        confidence interval. Units are those of the metrics' names; `slo_attainment` is a share.
        """
        found: DataFrame = frames().frame_of_rows(setting_rows(self.results))
        return found

    @cached_property
    def points(self) -> "DataFrame":
        """One row for each point: the swept values, `seed`, `status`, every metric, and `error`."""
        found: DataFrame = frames().frame_of_rows(point_rows(self.results))
        return found

    @property
    def scenario(self) -> dict[str, Any]:
        """The scenario's keys and values, with settings applied."""
        return dict(self.results.scenario)

    @with_one_line_errors
    def plot(self, **plot: Any) -> "Figure":
        """A picture of the sweep.

        Args:
            plot: the keys of a plot in a scenario's `report` section, such as `kind="curve"`.
                Without any: the first picture of the sweep's report.

        Raises:
            InputError: there is no such plot, key or metric.
        """
        from sim.report.figures.render import matplotlib_figure
        from sim.report.plots import draw_report, report_section

        asked = {"plots": [plot]} if plot else self.results.scenario.get("report") or {}
        section = report_section(asked, self.results)
        return matplotlib_figure(next(draw_report(self.results, section)).picture)

    def __repr__(self) -> str:
        table = sweep_table(self.results, max_rows=_MAX_TEXT_ROWS)
        parts = [line for part in fitted(table) for line in ("", *part.lines())]
        if (intervals := sweep_intervals(self.results, max_rows=_MAX_TEXT_ROWS)) is not None:
            parts += ["", f"{intervals.title}:"]
            parts += [line for part in fitted(intervals) for line in ("", *part.lines())][1:]
        return "\n".join([self._heading, *parts, *self._remarks])

    def _repr_html_(self) -> str:
        intervals = sweep_intervals(self.results, max_rows=_MAX_HTML_ROWS)
        tables = [sweep_table(self.results, max_rows=_MAX_HTML_ROWS), intervals]
        return html_of(self._heading, filter(None, tables), self._remarks)

    @property
    def _heading(self) -> str:
        results = self.results
        settings, points = len(results.design.settings), len(results.points)
        heading = f"{results.name}: a sweep of {settings:,} settings, {points:,} points"
        return heading + (f", {results.num_failed:,} failed" if results.num_failed else "")

    @property
    def _remarks(self) -> list[str]:
        failed = next((point for point in self.results.points if point.summary is None), None)
        reasons = [] if failed is None else [f"The first that failed: {failed.message}"]
        return [*same_rows(self.results), *sweep_basis(self.results), *reasons]


@with_one_line_errors
def sweep(
    scenario: Source,
    settings: Settings | None = None,
    *,
    jobs: int | None = None,
    out: Path | str | None = None,
) -> SweepResult:
    """Run a scenario with every combination of values that its `sweep` section lists.

    Args:
        scenario: as for `run`.
        settings: values by key path; `sweep` may be among them.
        jobs: how many processes; None: one for each core, but no more than points. 1: this process.
        out: a folder for points and results, as `simulate sweep --out` writes it: the same sweep
            runs only the points that are missing there, `load` reads it, `simulate report` draws
            it. None: nothing is kept on disk.

    Raises:
        InputError: the scenario or one of its points is invalid, the folder cannot be used, or
            every point failed.
    """
    plan = plan_sweep(scenario_of(scenario, settings).loaded)
    check_packages(plan.base)
    check_report_section(plan.base, plan)
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs: must be at least 1, got {jobs}")
    most = min(jobs or len(os.sched_getaffinity(0)), len(plan.points))
    executor: TaskExecutor = ThisProcess() if most == 1 else ProcessPool(most)
    if out is not None:
        results = sweep_into(Path(out), plan, executor, quiet=True)
    else:
        with TemporaryDirectory(prefix="servetwin-") as folder:
            results = sweep_into(Path(folder), plan, executor, quiet=True)
    if results.num_failed == len(results.points):
        raise InputError(f"every point failed, the first with: {results.points[0].message}")
    return SweepResult(results)
