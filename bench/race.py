"""Runs our simulator and a peer by turns, several times."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.bars import Bar
from bench.commands import compiled
from bench.process import Usage, measure
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
        work, num_requests, peer: as in the race's `Bar`.
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
        """The peer's shortest wall time over ours; above 1 we are faster."""
        return min(self.theirs.wall_s) / min(ours.wall_s) if self.theirs and ours else None

    def median_ratio(self, ours: Runs | None) -> float | None:
        """The peer's median wall time over ours."""
        return median(self.theirs.wall_s) / median(ours.wall_s) if self.theirs and ours else None


def race(bar: Bar, *, rounds: int, folder: Path) -> Result:
    """Run both by turns, each after a first run that is not counted and fills caches.

    Raises:
        InputError: a command fails.
    """
    usages: list[list[Usage]] = [[], [], []]
    for _ in range(rounds + 1):
        for command, runs in zip(_commands(bar), usages, strict=True):
            if command:
                runs.append(measure(command, folder / "race.log"))
    return _result(bar, [runs[1:] for runs in usages])


def run_once(bar: Bar, *, folder: Path) -> Result:
    """Run each once, for work that takes minutes.

    Raises:
        InputError: a command fails.
    """
    return _result(bar, [[measure(c, folder / "race.log")] if c else [] for c in _commands(bar)])


def _commands(bar: Bar) -> tuple[list[str], list[str], list[str]]:
    """Our command in pure Python, our compiled one, the peer's; empty where there is none."""
    return bar.ours, compiled(bar.ours), list(bar.theirs)


def _result(bar: Bar, usages: Sequence[Sequence[Usage]]) -> Result:
    pure, ours_compiled, theirs = (Runs.of(runs) if runs else None for runs in usages)
    if pure is None:
        raise InvariantError(f"{bar.work}: no run")
    return Result(bar.work, bar.num_requests, bar.peer, pure, ours_compiled, theirs)
