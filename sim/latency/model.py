"""How long a step takes: the interface of all latency models."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from sim.core.arrays import Int64
from sim.latency.features import StepFeatures


class RangeExit(NamedTuple):
    """One quantity of one mode that was outside its measured range.

    Attributes:
        feature: the quantity's name.
        num_steps: steps in which it was outside.
        lowest, highest: its least and its greatest value in those steps.
    """

    mode: str
    feature: str
    num_steps: int
    lowest: float
    highest: float
    low: float
    high: float

    def joined(self, other: "RangeExit") -> "RangeExit":
        """Both as one: they are of the same quantity and mode."""
        lowest, highest = min(self.lowest, other.lowest), max(self.highest, other.highest)
        num_steps = self.num_steps + other.num_steps
        return self._replace(num_steps=num_steps, lowest=lowest, highest=highest)

    def __str__(self) -> str:
        exits = []
        if self.highest > self.high:
            exits.append(f"up to {self.highest:,.0f}, measured up to {self.high:,.0f}")
        if self.lowest < self.low:
            exits.append(f"from {self.lowest:,.0f}, measured from {self.low:,.0f}")
        return f"{self.mode}: {self.feature} {'; '.join(exits)}"


class RangeReport(NamedTuple):
    """How many steps of a run lay outside its latency model's ranges.

    Attributes:
        exits: the quantities that were outside, grouped by mode. The mode that was outside first
            comes first.
    """

    num_steps: int = 0
    num_outside: int = 0
    exits: tuple[RangeExit, ...] = ()

    @classmethod
    def merged(cls, reports: Iterable["RangeReport"]) -> "RangeReport":
        num_steps = num_outside = 0
        exits: dict[tuple[str, str], RangeExit] = {}
        for report in reports:
            num_steps += report.num_steps
            num_outside += report.num_outside
            for found in report.exits:
                before = exits.get((found.mode, found.feature))
                exits[found.mode, found.feature] = before.joined(found) if before else found
        return cls(num_steps, num_outside, tuple(exits.values()))

    def __str__(self) -> str:
        """One line for the user; empty if all steps were inside."""
        if not self.num_outside:
            return ""
        share_pct = 100 * self.num_outside / self.num_steps
        share = f"{share_pct:.0f}" if share_pct >= 1 else f"{share_pct:.1g}"
        exits = "; ".join(map(str, self.exits))
        return f"{share} % of steps lie outside the profile's range: {exits}"


class StepTime(NamedTuple):
    """One step's device time and host time, in ns. Overlap scheduling hides the smaller one.

    A third time, the launch, is known of some models: see `Launching`.
    """

    device_ns: int
    host_ns: int


class LatencyModel(Protocol):
    """Maps a step's features to its duration: whole ns, at least 1 ns of device time.

    `step_ns` and `decode_run_ns` change nothing, so an answer never depends on earlier calls.
    `consume` tells the model which steps really ran. They may be fewer than `decode_run_ns` was
    asked for, because an arrival can end a decode run early. On `consume` a recording moves on, and
    a profile counts the steps outside its range; most models do nothing. One model serves one
    server, or one rank of a group. Of a group, only the ranks with work are asked. The step takes
    as long as the longest answer, for device time and for host time.
    """

    def step_ns(self, step: StepFeatures) -> StepTime:
        """Time of the next step.

        Raises InputError: the model has no time for this step (a recording that ended).
        """
        ...

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        """Device and host time of the next `num_steps` decode steps with the same rows.

        Step i is `first` with every decode row's context grown by i tokens. Element i of each
        array equals what `step_ns` gives for step i, to the bit. Both have shape [k] with
        1 <= k <= num_steps; k is less only where a recording ends, or its launch time changes.

        Raises InputError: as `step_ns`, for the first step.
        """
        ...

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        """Note that `num_steps` >= 1 steps ran: `first`, then decode steps with the same rows."""
        ...


def asked_step_by_step(
    step_ns: Callable[[StepFeatures], StepTime], first: StepFeatures, num_steps: int
) -> tuple[Int64, Int64]:
    """What `decode_run_ns` must return, from the times of single steps."""
    steps = [first]
    while len(steps) < num_steps:
        steps.append(steps[-1].next_decode())
    return each_step_ns(step_ns, steps)


def each_step_ns(
    step_ns: Callable[[StepFeatures], StepTime], steps: Sequence[StepFeatures]
) -> tuple[Int64, Int64]:
    """Device and host time of each step; shape [num_steps]."""
    times = np.array([step_ns(step) for step in steps], dtype=np.int64)
    return times[:, 0], times[:, 1]


def depends_on_step_alone(model: LatencyModel) -> bool:
    """Whether the times of steps may be asked for before the steps before them have run.

    Such a model has an attribute `depends_on_step_alone`, which is true. It may be false of the
    very first step.
    """
    return bool(getattr(model, "depends_on_step_alone", False))


class StepLatency:
    """Base class for models in which a step's time depends on the step alone.

    A model derived from it has only `step_ns`. Steps may be asked for in advance and again.
    """

    depends_on_step_alone = True

    def step_ns(self, step: StepFeatures) -> StepTime:
        raise NotImplementedError

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        return asked_step_by_step(self.step_ns, first, num_steps)

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        """Nothing changes."""


# By the time that they repeat: the longest array asked for so far, and the part of it that was
# asked for last. The ranks of a group ask for equal ones.
_equal_ns: dict[int, tuple[Int64, Int64]] = {}


def equal_ns(time_ns: int, num_steps: int) -> Int64:
    """The same time for each of many steps: read-only, shape [num_steps]."""
    known = _equal_ns.get(time_ns)
    if known is not None and len(known[1]) == num_steps:
        return known[1]
    if known is None or len(known[0]) < num_steps:
        times = np.full(max(num_steps, 256), time_ns, dtype=np.int64)
        times.flags.writeable = False
    else:
        times = known[0]
    _equal_ns[time_ns] = times, times[:num_steps]
    return _equal_ns[time_ns][1]


@runtime_checkable
class Launching(Protocol):
    """A latency model of a host that launches some steps kernel by kernel.

    `sim.des.replicas.replica` says what that means for a step.
    """

    def launch_ns(self, step: StepFeatures) -> int:
        """How long the host launches the kernels of the next step.

        0 for a step that replays a CUDA graph: its launch is a part of its host time. All steps
        that `decode_run_ns` answers together have one launch time.
        """
        ...


@runtime_checkable
class Growing(Protocol):
    """A latency model whose decode steps take no less time with more rows, or with more context.

    Attributes:
        growth_terms: all that times depend on beside rows and context: models in which they are
            equal give equal decode steps equal times.
    """

    growth_terms: tuple[float, ...]


# Of a server, or of each rank of a group.
ReplicaLatency = LatencyModel | tuple[LatencyModel, ...]


def each_latency(latencies: Iterable[ReplicaLatency]) -> Iterator[LatencyModel]:
    """The models of all servers and of all ranks."""
    for latency in latencies:
        if isinstance(latency, tuple):
            yield from latency
        else:
            yield latency


@runtime_checkable
class Ranged(Protocol):
    """A latency model that knows the range of sizes it was measured in."""

    def left_range(self) -> RangeReport:
        """How many steps so far were outside the measured range, and in which sizes."""
        ...


def launching(model: LatencyModel) -> Launching | None:
    """The model, if it knows launch times. All launch times of other models are 0."""
    return model if isinstance(model, Launching) else None


def growing(model: LatencyModel) -> Growing | None:
    """The model, if its times are known to grow with rows and context."""
    return model if isinstance(model, Growing) else None


def latency_source(model: LatencyModel) -> str | None:
    """Where a model's times come from, if others have measured them; otherwise None.

    Such a model has an attribute `source`: one line, which results show.
    """
    source = getattr(model, "source", None)
    return None if source is None else str(source)
