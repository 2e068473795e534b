"""The section that says which schedulers compete under which traffic: `contest`."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from sim.scenario.search_sections import Seed, Share
from sim.validation import KeysError, PrintableName, StrictModel
from sim.workload.config import WorkloadConfig

# The name of the scenario's own traffic in a contest.
OWN = "own"
_Load = Annotated[float, Field(ge=0.01, le=100)]


class TrafficSection(StrictModel):
    """Traffic of a contest that is not among those that ship."""

    name: PrintableName
    """What tables call it, different from all others."""
    workload: WorkloadConfig
    """The traffic. It must be one that can come faster or more slowly, so no class of the user's.
    A recorded trace draws nothing at random, so all seeds of it are alike."""
    pool_tokens: Annotated[int, Field(ge=1, le=1 << 40)] | None = None
    """The KV pool of each server, or rank, under this traffic, for every contestant. Without it:
    that of the scenario. Unit: tokens."""


class ContestSection(StrictModel):
    """Schedulers that compete. docs/how-to/contest.md explains it."""

    contestants: Annotated[dict[PrintableName, dict[str, Any]], Field(min_length=2)]
    """For each contestant its values by key path, such as `{scheduler.schedule_policy: lpm}`; a
    key that it does not name keeps the scenario's value."""
    reference: PrintableName
    """The contestant that the others are compared with, and whose capacity the loads are shares
    of."""
    traffic: (
        Annotated[tuple[PrintableName | TrafficSection, ...], Field(strict=False, min_length=1)]
        | None
    ) = None
    """Names of traffic that ships (docs/how-to/contest.md#the-suite), `own` for the scenario's
    `workload`, and sections. Without it: all that ships."""
    loads: Annotated[tuple[_Load, ...], Field(strict=False, min_length=1)] = (0.6, 1.0, 1.4)
    """How fast requests come, as shares of the capacity: the largest rate at which the reference
    keeps the SLO, found with the first five seeds. In ascending order. Unit: share."""
    seeds: (
        Annotated[int, Field(ge=1, le=1000)]
        | Annotated[tuple[Seed, ...], Field(strict=False, min_length=1)]
    ) = 5
    """How many times each contestant gets each traffic, drawn anew each time; or the seeds. All
    contestants get the same requests with the same seed. Differences need three or more. Unit:
    seeds."""
    min_slo_attainment: Share = 0.9
    """The capacity is the largest rate at which this share of the reference's requests finishes
    within the SLO. Unit: share."""
    curve: Annotated[tuple[PrintableName, ...], Field(strict=False)] = ()
    """Contestants that a line joins in the pictures, in this order, such as those that differ in
    one key. Without it: there is no line."""

    @model_validator(mode="after")
    def _named_contestants_exist(self) -> Self:
        for key, names in (("reference", (self.reference,)), ("curve", self.curve)):
            for name in names:
                if name not in self.contestants:
                    known = ", ".join(self.contestants)
                    raise KeysError(f"{key} {name} is not a contestant ({known})", key)
        return self

    @model_validator(mode="after")
    def _loads_ascend(self) -> Self:
        if any(low >= high for low, high in zip(self.loads, self.loads[1:], strict=False)):
            raise KeysError("loads must be in ascending order, each once", "loads")
        return self
