"""Ours and a peer, one after the other, several times."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.bars import Bar
from bench.process import Usage, measure


@dataclass(frozen=True, slots=True)
class Runs:
    """The same command several times.

    Attributes:
        wall_s, cpu_s, peak_mib: of each run, see Usage.
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
    """A bar's outcome.

    Attributes:
        work, num_requests, peer: of the bar.
        ours: our runs.
        theirs: the peer's, None if nobody else ran.
    """

    work: str
    num_requests: int
    peer: str
    ours: Runs
    theirs: Runs | None

    @property
    def min_ratio(self) -> float | None:
        """The peer's shortest wall time over ours; above 1 we are faster."""
        return min(self.theirs.wall_s) / min(self.ours.wall_s) if self.theirs else None

    @property
    def median_ratio(self) -> float | None:
        """The same of the medians."""
        return median(self.theirs.wall_s) / median(self.ours.wall_s) if self.theirs else None

    @property
    def cpu_ratio(self) -> float | None:
        """The same of the least CPU times, which others on the machine disturb less."""
        return min(self.theirs.cpu_s) / min(self.ours.cpu_s) if self.theirs else None


def race(bar: Bar, *, rounds: int, folder: Path) -> Result:
    """Run both by turns, after one run each that does not count: files and bytecode get warm.

    Raises:
        InputError: a command fails.
    """
    mine: list[Usage] = []
    others: list[Usage] = []
    for _ in range(rounds + 1):
        mine.append(measure(bar.ours, folder / "ours.log"))
        if bar.theirs:
            others.append(measure(bar.theirs, folder / "theirs.log"))
    theirs = Runs.of(others[1:]) if others else None
    return Result(bar.work, bar.num_requests, bar.peer, Runs.of(mine[1:]), theirs)


def run_once(bar: Bar, *, folder: Path) -> Result:
    """A single run of ours, of what takes minutes.

    Raises:
        InputError: the command fails.
    """
    usage = measure(bar.ours, folder / "ours.log")
    return Result(bar.work, bar.num_requests, "", Runs.of([usage]), None)
