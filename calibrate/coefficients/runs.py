"""A measured run that a fit simulates: which requests it sees, and which are held out."""

from collections.abc import Mapping
from dataclasses import dataclass

from calibrate.measured.pairs import Pairs, Selection, join
from calibrate.measured.twin import Twin
from sim.runlog import RunLog
from sim.runlog.measured import MeasuredRun
from sim.scenario.overrides import Change


def changes_to(values: Mapping[str, float]) -> list[Change]:
    """Changes of a scenario that give keys these values."""
    return [Change(key, value, key) for key, value in values.items()]


@dataclass(frozen=True, slots=True)
class FitRun:
    """One measured run.

    Attributes:
        name: of its file.
        measured: its requests, in order of arrival.
        twin: its scenario.
        first: the fit sees the first requests by arrival, as many as this; the others are held out.
    """

    name: str
    measured: MeasuredRun
    twin: Twin
    first: int

    def simulate(self, values: Mapping[str, float]) -> RunLog:
        """Its requests with these values of the coefficients, by key."""
        return self.twin.run_with(changes_to(values))

    def seen(self, log: RunLog) -> Pairs:
        """The requests that the fit sees."""
        return join(self.measured, log.requests, Selection(first=self.first))

    def held_out(self, log: RunLog) -> Pairs:
        return join(self.measured, log.requests, Selection(skip=self.first))
