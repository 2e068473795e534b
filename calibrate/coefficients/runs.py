"""A measured run that a fit simulates: which requests it sees, and which are held out."""

from collections.abc import Mapping
from dataclasses import dataclass

from calibrate.measured.pairs import MeasuredPairs, Selection, join
from calibrate.measured.twin import Twin
from sim.runlog import RunLog
from sim.runlog.run_log_file import MeasuredRun
from sim.scenario.overrides import Change

# Factor on the measured time, for simulations that are slower than the server was.
_MARGIN = 1.3


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
        limit: requests of the workload that a fit simulates: later ones arrive when all that it
            sees have finished. None: all.
    """

    name: str
    measured: MeasuredRun
    twin: Twin
    first: int
    limit: int | None = None

    def changes(self, values: Mapping[str, float]) -> list[Change]:
        """The scenario's changes for a simulation of a fit."""
        changes = changes_to(values)
        if self.limit is not None:
            changes.append(Change("workload.limit", self.limit, "workload.limit"))
        return changes

    def simulate(self, values: Mapping[str, float]) -> RunLog:
        """The requests that a fit needs, with these values of the coefficients, by key."""
        return self.twin.run_with(self.changes(values))

    def simulate_all(self, values: Mapping[str, float]) -> RunLog:
        """All requests of the workload, with these values of the coefficients, by key."""
        return self.twin.run_with(changes_to(values))

    def seen(self, log: RunLog) -> MeasuredPairs:
        """The requests that the fit sees."""
        return join(self.measured, log.requests, Selection(first=self.first))

    def held_out(self, log: RunLog) -> MeasuredPairs:
        """The requests that the fit does not see."""
        return join(self.measured, log.requests, Selection(skip=self.first))


def limit_of(measured: MeasuredRun, first: int) -> int:
    """How many requests of the workload a fit to the first ones has to simulate.

    Those that arrive until the first ones had finished on the server, and somewhat later ones.
    """
    replayed = (measured.prompt_tokens > 0) & (measured.output_tokens > 0)
    end_ns = measured.finish_ns[:first].max()
    last_ns = measured.arrival_ns[0] + (end_ns - measured.arrival_ns[0]) * _MARGIN
    needed = int((replayed & (measured.arrival_ns <= last_ns)).sum())
    return max(needed, int(replayed[:first].sum()), 1)
