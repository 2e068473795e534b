"""Runs our simulator and its peers in turns, several times."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.process import Usage, measure
from bench.races import Race


@dataclass(frozen=True, slots=True)
class Runs:
    """Several runs of one command.

    Attributes:
        wall_s, cpu_s, peak_mib: of each run; see `Usage`.
    """

    wall_s: list[float]
    cpu_s: list[float]
    peak_mib: list[float]

    @classmethod
    def of(cls, usages: Sequence[Usage]) -> "Runs":
        return cls(
            [round(usage.wall_s, 4) for usage in usages],
            [round(usage.cpu_s, 4) for usage in usages],
            [round(usage.peak_mib, 1) for usage in usages],
        )


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a race.

    Attributes:
        work, num_requests: as in its `Race`.
        ours: our runs.
        theirs: each peer's runs, by its name.
    """

    work: str
    num_requests: int
    ours: Runs
    theirs: dict[str, Runs]

    def ratios(self, peer: str) -> tuple[float, float, float]:
        """Our time over the peer's. Below 1 we win.

        Returns:
            The ratio of the shortest wall times, of their medians, and of the least processor
            times, which other work on the machine hardly changes.
        """
        ours, theirs = self.ours, self.theirs[peer]
        return (
            min(ours.wall_s) / min(theirs.wall_s),
            median(ours.wall_s) / median(theirs.wall_s),
            min(ours.cpu_s) / min(theirs.cpu_s),
        )


def run_in_turns(race: Race, *, rounds: int, folder: Path) -> Result:
    """Run the commands in turns. The first run of each fills caches and is not counted.

    Raises:
        InputError: a command fails.
    """
    commands = [race.ours, *race.theirs.values()]
    rows = [[measure(each, folder / "race.log") for each in commands] for _ in range(rounds + 1)]
    return _result(race, rows[1:])


def run_once(race: Race, *, folder: Path) -> Result:
    """Run each command once, for work that takes minutes.

    Raises:
        InputError: a command fails.
    """
    commands = [race.ours, *race.theirs.values()]
    return _result(race, [[measure(each, folder / "race.log") for each in commands]])


def _result(race: Race, rows: Sequence[Sequence[Usage]]) -> Result:
    ours, *theirs = (Runs.of(usages) for usages in zip(*rows, strict=True))
    by_peer = dict(zip(race.theirs, theirs, strict=True))
    return Result(race.work, race.num_requests, ours, by_peer)
