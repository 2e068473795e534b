"""The `admission` key of the scheduler section: which requests a prefill pass considers."""

from typing import Annotated, Literal

from pydantic import Field

from sim.sglang.scheduler.packing import PackSettings
from sim.strict_model import StrictModel

_MOST = 2**31 - 1

_Count = Annotated[int, Field(ge=1, le=_MOST)]


class SglangAdmissionConfig(StrictModel):
    """The queue in its order, up to the first request that does not fit. This is SGLang's way."""

    kind: Literal["sglang"]

    def settings(self) -> PackSettings | None:
        return None


class PackConfig(StrictModel):
    """The cheapest of the first requests, as many as fit into `max_prefill_tokens`.

    docs/explanation/packing.md explains it.
    """

    kind: Literal["pack"]
    lookahead: _Count = 64
    """How many requests at the head of the queue are looked at. Unit: requests."""
    force_fifo_every: _Count = 8
    """One of this many passes takes the queue as it is. 1: every pass does. Unit: passes."""
    cost: Literal["prompt", "uncached"] = "prompt"
    """What a request costs: all tokens of its prompt, or only those that are not in the prefix
    cache."""

    def settings(self) -> PackSettings | None:
        return PackSettings(self.lookahead, self.force_fifo_every, self.cost == "prompt")


AdmissionConfig = Annotated[SglangAdmissionConfig | PackConfig, Field(discriminator="kind")]
