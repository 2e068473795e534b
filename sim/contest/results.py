"""The results of a contest: the runs of each contestant, and how it differs from the reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from sim.confidence.confidence import over_seeds
from sim.contest.capacity import Capacity
from sim.contest.compare import Difference, corrected, difference, paired
from sim.contest.measures import MEASURES, Measure
from sim.contest.plan import Contest, factor_of
from sim.contest.suite import SuiteTraffic
from sim.metrics.points import MeanInterval, mean_interval
from sim.metrics.summary import Summary
from sim.sweep.plan import Point
from sim.sweep.store import PointOutcome, StoredPoints, Watcher
from sim.workers.executor import TaskStatus


class ContestCell(NamedTuple):
    """A contestant under some traffic at a load, which is a share of the capacity."""

    contestant: str
    traffic: str
    load: float


class Overall(NamedTuple):
    """A contestant at a load, over all traffic."""

    contestant: str
    load: float


# The differences of a measure, by where they were found.
CellDifferences = Mapping[ContestCell, Difference]


@dataclass(frozen=True)
class ContestResults:
    """All runs of a contest.

    Attributes:
        outcomes: of each cell, one for each seed; the keys are in the order of the file: the
            contestant varies slowest, the load fastest.
    """

    contest: Contest
    capacities: Mapping[str, Capacity]
    outcomes: Mapping[ContestCell, tuple[PointOutcome, ...]]

    @property
    def reference(self) -> str:
        return self.contest.section.reference

    @property
    def loads(self) -> tuple[float, ...]:
        return self.contest.section.loads

    @property
    def traffic(self) -> tuple[SuiteTraffic, ...]:
        return self.contest.traffic

    @property
    def usual_load(self) -> float:
        """The load that is nearest to the capacity, the higher one of two: the first table's.

        Below the capacity the queue is short, and its order matters less.
        """
        return min(self.loads, key=lambda load: (round(abs(load - 1), 6), -load))

    @cached_property
    def failures(self) -> Mapping[str, tuple[ContestCell, PointOutcome]]:
        """The first run of each contestant that did not end well; it takes no part any more."""
        found: dict[str, tuple[ContestCell, PointOutcome]] = {}
        for cell, outcomes in self.outcomes.items():
            for outcome in outcomes:
                if outcome.status is not TaskStatus.DONE:
                    found.setdefault(cell.contestant, (cell, outcome))
        return found

    @property
    def contestants(self) -> list[str]:
        """Those that took part to the end, in the order of the file."""
        return [name for name in self.contest.section.contestants if name not in self.failures]

    @property
    def challengers(self) -> list[str]:
        """Those of them that are compared with the reference."""
        return [name for name in self.contestants if name != self.reference]

    def runs(self, cell: ContestCell) -> list[Summary]:
        """The summaries of a cell, one for each seed."""
        return [outcome.result for outcome in self.outcomes[cell] if outcome.result is not None]

    def interval(self, cell: ContestCell, measure: Measure) -> MeanInterval:
        """The measure's mean over the seeds in which it is defined."""
        values = [measure.value(run) for run in self.runs(cell)]
        return mean_interval([value for value in values if value is not None])

    def differences(self, measure: Measure) -> CellDifferences:
        """How each challenger differs from the reference, corrected over all of them."""
        return self._found[measure.name][0]

    def overall(self, measure: Measure) -> Mapping[Overall, Difference]:
        """The same over all traffic in which the measure is defined, corrected over all of them."""
        return self._found[measure.name][1]

    @cached_property
    def _found(self) -> Mapping[str, tuple[CellDifferences, Mapping[Overall, Difference]]]:
        return {measure.name: self._compared(measure) for measure in MEASURES}

    def _compared(self, measure: Measure) -> tuple[CellDifferences, Mapping[Overall, Difference]]:
        pairs = {
            ContestCell(name, traffic.name, load): self._paired(
                measure, ContestCell(name, traffic.name, load)
            )
            for name in self.challengers
            for traffic in self.traffic
            for load in self.loads
        }
        cells = {
            cell: difference(measure, values, draws=self._draws(cell.traffic, cell.load))
            for cell, values in pairs.items()
        }
        overall = {
            Overall(name, load): difference(
                measure,
                _over_traffic(
                    [pairs[ContestCell(name, traffic.name, load)] for traffic in self.traffic]
                ),
                draws=any(self._draws(traffic.name, load) for traffic in self.traffic),
            )
            for name in self.challengers
            for load in self.loads
        }
        return corrected(cells), corrected(overall)

    def _paired(self, measure: Measure, cell: ContestCell) -> list[float] | None:
        base = ContestCell(self.reference, cell.traffic, cell.load)
        of_both = [[measure.value(run) for run in self.runs(each)] for each in (cell, base)]
        return paired(measure, *of_both)

    def _draws(self, traffic: str, load: float) -> bool:
        """Whether seeds change the traffic; those of a recorded trace do not."""
        runs = self.runs(ContestCell(self.reference, traffic, load))
        return len({(run["duration"], run["mean_ttft_ms"]) for run in runs}) > 1

    @property
    def confidence(self) -> dict[str, Any]:
        """What the step times of the reference rest on."""
        cell = ContestCell(self.reference, self.traffic[0].name, self.usual_load)
        found = over_seeds([run["confidence"] for run in self.runs(cell) if run.get("confidence")])
        # The intervals of its means are about one traffic and load of many.
        return {key: found[key] for key in ("basis", "source") if key in found}


def _over_traffic(pairs: Sequence[list[float] | None]) -> list[float] | None:
    """For each seed the mean over the traffic in which differences are defined."""
    known = [values for values in pairs if values is not None]
    return [sum(values) / len(known) for values in zip(*known, strict=True)] if known else None


def run_contest(
    contest: Contest,
    capacities: Mapping[str, Capacity],
    points: StoredPoints,
    watcher: Watcher,
) -> ContestResults:
    """Run each contestant under each traffic, at each load and with each seed.

    Raises:
        InputError: an outcome cannot be stored, the executor cannot be used, or the reference
            failed.
    """
    groups: dict[ContestCell, Sequence[Point]] = {
        ContestCell(name, traffic.name, load): contest.points(
            name, traffic, factor_of(capacities[traffic.name].factor, load)
        )
        for name in contest.section.contestants
        for traffic in contest.traffic
        for load in contest.section.loads
    }
    found = points.run(contest.plan, groups.values(), watcher)
    results = ContestResults(contest, capacities, dict(zip(groups, found, strict=True)))
    if results.reference in results.failures:
        cell, outcome = results.failures[results.reference]
        reason = f"{cell.contestant} failed under traffic {cell.traffic}: {outcome.message}"
        raise contest.base.error(("contest", "reference"), reason)
    return results
