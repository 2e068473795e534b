"""How many steps of a run lay outside the ranges that a latency model was measured in."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class RangeExit(NamedTuple):
    """One quantity of one mode that was outside its measured range.

    Attributes:
        mode: extend, decode or mixed.
        feature: name of the quantity.
        num_steps: steps in which it was outside.
        lowest, highest: its least and its greatest value in those steps.
        low, high: the measured range.
    """

    mode: str
    feature: str
    num_steps: int
    lowest: float
    highest: float
    low: float
    high: float

    def __str__(self) -> str:
        sides = []
        if self.highest > self.high:
            sides.append(f"up to {self.highest:,.0f}, measured up to {self.high:,.0f}")
        if self.lowest < self.low:
            sides.append(f"from {self.lowest:,.0f}, measured from {self.low:,.0f}")
        return f"{self.mode}: {self.feature} {'; '.join(sides)}"


@dataclass(frozen=True, slots=True)
class RangeReport:
    """How many steps of a run lay outside its latency model's ranges.

    Attributes:
        num_steps: all steps that ran.
        num_outside: steps with any quantity outside its range.
        exits: the quantities that were outside, grouped by mode. The mode that was outside first
            comes first.
    """

    num_steps: int = 0
    num_outside: int = 0
    exits: tuple[RangeExit, ...] = field(default=())

    @classmethod
    def merged(cls, reports: Iterable["RangeReport"]) -> "RangeReport":
        """The reports of several servers as one."""
        num_steps = num_outside = 0
        exits: dict[tuple[str, str], RangeExit] = {}
        for report in reports:
            num_steps += report.num_steps
            num_outside += report.num_outside
            for found in report.exits:
                before = exits.get((found.mode, found.feature))
                exits[found.mode, found.feature] = _joined(before, found) if before else found
        return cls(num_steps, num_outside, tuple(exits.values()))

    def __str__(self) -> str:
        """One line for the user; empty if all steps were inside."""
        if not self.num_outside:
            return ""
        share_pct = 100 * self.num_outside / self.num_steps
        share = f"{share_pct:.0f}" if share_pct >= 1 else f"{share_pct:.1g}"
        exits = "; ".join(map(str, self.exits))
        return f"{share} % of steps lie outside the profile's range: {exits}"


def _joined(a: RangeExit, b: RangeExit) -> RangeExit:
    return a._replace(
        num_steps=a.num_steps + b.num_steps,
        lowest=min(a.lowest, b.lowest),
        highest=max(a.highest, b.highest),
    )
