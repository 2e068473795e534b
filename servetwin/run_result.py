"""Run a scenario, and what it results in."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from servetwin.errors import with_one_line_errors
from servetwin.html import frames, html_of
from servetwin.scenario import Settings, Source, scenario_of
from sim.commands.running.simulate import (
    Simulation,
    run_built,
    simulate_here,
    summary_with_confidence,
)
from sim.core.errors import InputError
from sim.metrics.latencies import slo_limits
from sim.metrics.summary import Summary
from sim.metrics.timeline import Timeline, timeline
from sim.report.confidence_text import confidence_lines
from sim.report.summary_text import (
    latency_table,
    pool_tables,
    short_summary,
    slo_table,
    totals_table,
)
from sim.runlog import RunLog
from sim.scenario.build import build

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True, eq=False, repr=False)
class RunResult:
    """A run: its metrics, and everything that happened.

    Attributes:
        scenario: the scenario's keys and values, with settings applied.
        summary: metrics by name, as `simulate run --format json` prints them.
        log: the requests and steps as columns of numpy arrays. One that was loaded from the folder
            of a run has no steps.
    """

    scenario: dict[str, Any]
    summary: Summary
    log: RunLog
    _windows: Timeline | None = None

    @cached_property
    def requests(self) -> "DataFrame":
        """One row for each request, in order of arrival: its times, tokens and status."""
        found: DataFrame = frames().request_frame(self.log)
        return found

    @cached_property
    def steps(self) -> "DataFrame":
        """One row for each step, or for several equal decode steps in a row.

        Raises:
            InputError: the run was loaded from a folder, which has no steps.
        """
        if not len(self.log.steps.t_start_ns):
            raise InputError(f"{self._name}: has no steps: the folder of a run does not keep them")
        found: DataFrame = frames().step_frame(self.log)
        return found

    @cached_property
    def timeline(self) -> "DataFrame":
        """The run in 600 equal windows: requests, KV tokens, tokens per second."""
        found: DataFrame = frames().timeline_frame(self._timeline)
        return found

    @with_one_line_errors
    def plot(self, kind: Literal["timeline", "ttft"] = "timeline") -> "Figure":
        """A picture: the run over time, or the distribution of the time to first token."""
        from sim.report.figures.render import matplotlib_figure
        from sim.report.figures.run_logs import timeline_picture, ttft_picture

        if kind == "timeline":
            return matplotlib_figure(timeline_picture(self._timeline, self.log))
        if kind == "ttft":
            return matplotlib_figure(ttft_picture({self._name: self.log}))
        raise InputError(f"kind: must be timeline or ttft, got {kind!r}")

    @with_one_line_errors
    def save(self, folder: Path | str) -> None:
        """Write what `simulate run --out` writes; `load` reads it, `simulate report` draws it.

        Args:
            folder: it is made if its parent exists; files of an earlier run are replaced.

        Raises:
            InputError: it cannot be written, or the run was loaded from a folder.
        """
        from sim.report.run_folder import write_out_dir

        if self._windows is not None:
            raise InputError(f"{self._name}: was loaded from a folder: copy that folder")
        write_out_dir(self.log, self.summary, Path(folder), self.scenario)

    def __repr__(self) -> str:
        return "\n".join([self._heading, "", *short_summary(self.summary), *self._trust])

    def _repr_html_(self) -> str:
        tables = [latency_table(self.summary), *pool_tables(self.summary)]
        tables.append(totals_table(self.summary))
        if slo_limits(self.summary):
            tables.insert(1, slo_table(self.summary))
        return html_of(self._heading, tables, self._trust)

    @property
    def _trust(self) -> list[str]:
        return confidence_lines(self.summary.get("confidence", {}))

    @property
    def _name(self) -> str:
        return str(self.scenario.get("name", "run"))

    @property
    def _heading(self) -> str:
        submitted, seconds = self.summary["submitted"], self.summary["duration"]
        return f"{self._name}: a run of {submitted:,} requests in {seconds:,.1f} s"

    @property
    def _timeline(self) -> Timeline:
        return timeline(self.log) if self._windows is None else self._windows


@with_one_line_errors
def run(
    scenario: Source, settings: Settings | None = None, *, jobs: int | None = None
) -> RunResult:
    """Simulate a scenario.

    Args:
        scenario: the path of a file; or a mapping with the same keys, in which paths are relative
            to the current folder; or a `Scenario`. Its sections `sweep`, `tune` and `plan` are
            ignored.
        settings: values by key path, as for `--set`: `{"scheduler.schedule_policy": "lpm"}`.
        jobs: how many processes simulate the replicas, if no replica can influence another. The
            result is the same. None: this process alone.

    Raises:
        InputError: the scenario, or a file that it names, is invalid.
    """
    loaded = scenario_of(scenario, settings).loaded
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs: must be at least 1, got {jobs}")
    built = build(loaded)
    simulation: Simulation = simulate_here
    if (jobs or 1) > 1:
        from sim.commands.running.run_parts import in_workers

        simulation = in_workers(built, jobs)
    log = run_built(built, simulation=simulation)
    return RunResult(dict(loaded.raw), summary_with_confidence(log, built), log)
