"""What a scenario's `warmup:` and `cooldown:` sections may say."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from sim.core.units import NS_PER_S
from sim.metrics.window import Edge
from sim.validation.strict_model import KeysError, StrictModel
from sim.workload.limits import MAX_REQUESTS


class EdgeSection(StrictModel):
    """A time, or a number of requests, at one end of a run."""

    duration_s: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """This long: of a warm-up from the first arrival on, of a cool-down up to the last one. Unit:
    s."""
    requests: Annotated[int, Field(ge=0, le=MAX_REQUESTS)] | None = None
    """Number of requests: those that arrive first, or last. Unit: requests."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.duration_s is None) == (self.requests is None):
            raise KeysError("give either duration_s or requests", "duration_s", "requests")
        return self

    def edge(self) -> Edge:
        """The same for `sim.metrics`."""
        if self.duration_s is None:
            return Edge(num_requests=self.requests)
        return Edge(duration_ns=round(self.duration_s * NS_PER_S))
