"""Keys that every kind of traffic has."""

from typing import Annotated

from pydantic import Field

from sim.validation.strict_model import StrictModel
from sim.workload.arrivals import ThinkTime
from sim.workload.lengths import MaxNewTokens, PredictedOutput


class GiveUp(StrictModel):
    """Clients that do not wait for the whole answer (docs/explanation/aborts.md)."""

    share: Annotated[float, Field(ge=0, le=1)]
    """The share of requests whose client gives up. Unit: share."""
    after_s: ThinkTime
    """Time from a request's arrival to the end of its client's patience. Unit: s."""


class CommonConfig(StrictModel):
    """Keys that every kind of traffic has."""

    tenant: str = ""
    """Name of the tenant that sends the requests. Metrics are also given for each tenant."""
    max_new_tokens: MaxNewTokens | None = None
    """Each request's limit on its output. Without this key: the trace's limit, or the output length
    if the trace has no limits. Unit: tokens."""
    predicted_output: PredictedOutput | None = None
    """How each output length is guessed, for schedule policy `sjf`. Without it: no guess."""
    give_up: GiveUp | None = None
    """Some clients give up: their requests are aborted. Without it: those of a trace of format
    servetwin that say so, else none."""
