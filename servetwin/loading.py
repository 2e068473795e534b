"""Load a scenario, or the results of a finished run or sweep."""

from pathlib import Path

from servetwin.errors import with_one_line_errors
from servetwin.run_result import RunResult
from servetwin.scenario import Scenario, Settings, Source, scenario_of
from servetwin.sweep_result import SweepResult
from sim.core.errors import InputError
from sim.report.run_folder import SUMMARY, read_run
from sim.sweep.result_files import RESULTS, read_results
from sim.sweep.tune.files import is_tune_folder


@with_one_line_errors
def load(source: Source, settings: Settings | None = None) -> Scenario | RunResult | SweepResult:
    """Read a scenario, or the results in a folder; nothing is simulated.

    Args:
        source: the path of a scenario file, or a mapping with the same keys: a `Scenario`. The
            folder that `simulate run --out` or `RunResult.save` wrote: a `RunResult`. The folder of
            a sweep: a `SweepResult`.
        settings: values by key path, for a scenario.

    Raises:
        InputError: it is none of these, or it is damaged.
    """
    if not isinstance(source, str | Path) or not Path(source).is_dir():
        return scenario_of(source, settings)
    folder = Path(source)
    if settings:
        raise InputError(f"{folder}: settings are for scenarios, not for finished results")
    if (folder / RESULTS).exists() and not is_tune_folder(folder):
        return SweepResult(read_results(folder))
    if (folder / SUMMARY).exists():
        data = read_run(folder)
        return RunResult(dict(data.scenario), dict(data.summary), data.log, data.timeline)
    raise InputError(f"{folder}: holds no finished run or sweep")
