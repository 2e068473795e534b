"""Compare runs: their metrics side by side."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from servetwin.errors import with_one_line_errors
from servetwin.html import frames, html_of
from servetwin.loading import load
from servetwin.run_result import RunResult, run
from servetwin.scenario import Settings, Source
from servetwin.sweep_result import SweepResult
from sim.core.errors import InputError
from sim.report.confidence_text import basis_lines
from sim.report.summary_text import comparison_table, scalar_metrics
from sim.tables.table import fitted

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_MOST_DRAWN = 4


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Runs side by side. Differences in its table are to the first run.

    Attributes:
        runs: the results by name.
    """

    runs: Mapping[str, RunResult]

    @cached_property
    def frame(self) -> "DataFrame":
        """One row for each metric, one column for each run."""
        metrics = {name: scalar_metrics(run.summary) for name, run in self.runs.items()}
        found: DataFrame = frames().frame_of_columns(metrics)
        return found

    @with_one_line_errors
    def plot(self, kind: Literal["overview", "ttft"] = "overview") -> "Figure":
        """A picture of the runs.

        Args:
            kind: `overview`: TTFT, hit rate against p99 TTFT, and hit rate and queue over time.
                `ttft`: the distribution of the time to first token.

        Raises:
            InputError: the overview is of more than four runs, or of one that was loaded from a
                folder.
        """
        from sim.report.figures.render import matplotlib_figure
        from sim.report.figures.run_logs import comparison_picture, ttft_picture

        logs = {name: result.log for name, result in self.runs.items()}
        if kind == "ttft":
            return matplotlib_figure(ttft_picture(logs))
        if kind != "overview":
            raise InputError(f"kind: must be overview or ttft, got {kind!r}")
        if len(self.runs) > _MOST_DRAWN:
            raise InputError(f"an overview shows at most {_MOST_DRAWN} runs, got {len(self.runs)}")
        for name, result in self.runs.items():
            if not len(result.log.steps.t_start_ns):
                raise InputError(f"{name}: has no steps to draw: it was loaded from a folder")
        return matplotlib_figure(comparison_picture(logs, ", ".join(logs)))

    def __repr__(self) -> str:
        table = comparison_table({name: result.summary for name, result in self.runs.items()})
        parts = ["\n".join(part.lines()) for part in fitted(table)]
        return "\n".join([*parts, *self._trust])

    def _repr_html_(self) -> str:
        table = comparison_table({name: result.summary for name, result in self.runs.items()})
        return html_of(", ".join(self.runs), [table], self._trust)

    @property
    def _trust(self) -> list[str]:
        """What the step times of the runs rest on; each run says between what its means are."""
        return basis_lines([run.summary.get("confidence", {}) for run in self.runs.values()])


@with_one_line_errors
def compare(
    runs: Mapping[str, RunResult | Source] | Sequence[RunResult | Source],
    settings: Settings | None = None,
) -> Comparison:
    """Put the metrics of runs side by side; scenarios are run first.

    `simulate compare` is another thing: it finds the first decision in which two logs differ.

    Args:
        runs: by name, or in a list: results of `run`, folders of finished runs, or whatever `run`
            takes. In a list, runs are called as their scenarios are.
        settings: values by key path, for those that have to be run.

    Raises:
        InputError: a scenario is invalid, a folder has no run, or there is nothing to compare.
    """
    if isinstance(runs, Mapping):
        named = {str(name): _result(source, settings) for name, source in runs.items()}
    elif isinstance(runs, str | Path):
        raise InputError(f"{runs}: is one run: give a list, or a mapping of names to runs")
    else:
        named = _named([_result(source, settings) for source in runs])
    if not named:
        raise InputError("there is no run to compare")
    return Comparison(named)


def _result(source: RunResult | Source, settings: Settings | None) -> RunResult:
    if isinstance(source, RunResult):
        return source
    found = load(source) if isinstance(source, str | Path) and Path(source).is_dir() else source
    if isinstance(found, SweepResult):
        raise InputError(f"{source}: is the folder of a sweep, not of a run")
    return found if isinstance(found, RunResult) else run(found, settings)


def _named(results: Sequence[RunResult]) -> dict[str, RunResult]:
    """The results by the names of their scenarios; a name that occurs again gets a number."""
    seen: Counter[str] = Counter()
    named = {}
    for result in results:
        name = str(result.scenario.get("name", "run"))
        seen[name] += 1
        named[name if seen[name] == 1 else f"{name} ({seen[name]})"] = result
    return named
