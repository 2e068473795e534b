"""The `admission` key of the scheduler section: which requests a prefill pass considers."""

from typing import Annotated, Literal

from pydantic import Field

from sim.sglang.scheduler.packing import PackSettings
from sim.strict_model import StrictModel

_MOST = 2**31 - 1

_Count = Annotated[int, Field(ge=1, le=_MOST)]


class SglangAdmissionConfig(StrictModel):
    """`kind: sglang`: the whole queue in order, up to the first request that does not fit."""

    kind: Literal["sglang"]

    def settings(self) -> PackSettings | None:
        return None


class PackConfig(StrictModel):
    """`kind: pack`: the cheapest of the first `lookahead` requests (docs/packing.md)."""

    kind: Literal["pack"]
    lookahead: _Count = 64
    force_fifo_every: _Count = 8
    cost: Literal["prompt", "uncached"] = "prompt"

    def settings(self) -> PackSettings | None:
        return PackSettings(self.lookahead, self.force_fifo_every, self.cost == "prompt")


AdmissionConfig = Annotated[SglangAdmissionConfig | PackConfig, Field(discriminator="kind")]
