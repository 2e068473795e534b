"""Runs our simulator and a peer in turns, several times."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.commands import compiled
from bench.process import Usage, measure
from bench.races import Race
from sim.core.errors import InvariantError


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
        work, num_requests, peer: as in its `Race`.
        pure: our runs, in pure Python.
        compiled: our runs with the compiled build; None if there is none.
        theirs: the peer's runs; None without a peer.
    """

    work: str
    num_requests: int
    peer: str
    pure: Runs
    compiled: Runs | None
    theirs: Runs | None

    def min_ratio(self, ours: Runs | None) -> float | None:
        """The peer's shortest wall time over ours; above 1 if we are faster."""
        return min(self.theirs.wall_s) / min(ours.wall_s) if self.theirs and ours else None

    def median_ratio(self, ours: Runs | None) -> float | None:
        """The peer's median wall time over ours."""
        return median(self.theirs.wall_s) / median(ours.wall_s) if self.theirs and ours else None


def run_in_turns(race: Race, *, rounds: int, folder: Path) -> Result:
    """Run the commands in turns. The first run of each fills caches and is not counted.

    Raises:
        InputError: a command fails.
    """
    usages: list[list[Usage]] = [[], [], []]
    for _ in range(rounds + 1):
        for command, runs in zip(_commands(race), usages, strict=True):
            if command:
                runs.append(measure(command, folder / "race.log"))
    return _result(race, [runs[1:] for runs in usages])


def run_once(race: Race, *, folder: Path) -> Result:
    """Run each command once, for work that takes minutes.

    Raises:
        InputError: a command fails.
    """
    return _result(race, [[measure(c, folder / "race.log")] if c else [] for c in _commands(race)])


def _commands(race: Race) -> tuple[list[str], list[str], list[str]]:
    """Our command in pure Python, our compiled one, the peer's; empty where there is none."""
    return race.ours, compiled(race.ours), list(race.theirs)


def _result(race: Race, usages: Sequence[Sequence[Usage]]) -> Result:
    pure, ours_compiled, theirs = (Runs.of(runs) if runs else None for runs in usages)
    if pure is None:
        raise InvariantError(f"{race.work}: no run")
    return Result(race.work, race.num_requests, race.peer, pure, ours_compiled, theirs)
