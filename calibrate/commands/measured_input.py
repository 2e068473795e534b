"""The input of two commands: a scenario, a measured run of it, and a selection of requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrate.measured.pairs import Selection
from calibrate.measured.twin import Twin
from sim.runlog.run_log_file import MeasuredRun, read_measured
from sim.scenario.load import load_scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredInput:
    """A measured run and its scenario.

    Attributes:
        scenario: the scenario; its workload is the measured run's.
        run: the measured run.
        overrides: `key.path=value` options for the scenario.
        selection: which requests are judged.
        measured_arrivals: requests arrive when they were measured to arrive, not when the scenario
            says.
    """

    scenario: Path
    run: Path
    overrides: Sequence[str]
    selection: Selection
    measured_arrivals: bool

    def read(self) -> tuple[MeasuredRun, Twin]:
        """Raises InputError if a file is bad or the selection does not fit the run."""
        measured = read_measured(self.run)
        self.selection.rows(measured)
        loaded = load_scenario(self.scenario, self.overrides)
        return measured, Twin(loaded, measured if self.measured_arrivals else None)
