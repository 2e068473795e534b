"""The `admission` key of the scheduler section: which requests a prefill pass considers."""

from typing import Annotated, Literal

from pydantic import Field

from sim.core.told import Count
from sim.sglang.scheduler.prefill.packing import PackSettings
from sim.user.named_class import OrUserClass, UserClass
from sim.validation.strict_model import StrictModel


class SglangAdmissionConfig(StrictModel):
    """A pass takes the queue in order, up to the first request that does not fit, as in SGLang."""

    kind: Literal["sglang"]

    def settings(self) -> PackSettings | None:
        return None


class PackConfig(StrictModel):
    """A pass takes the cheapest of the first `lookahead` requests, up to `max_prefill_tokens`.

    docs/explanation/packing.md explains it.
    """

    kind: Literal["pack"]
    lookahead: Count = 64
    """How many requests at the head of the queue are considered. Unit: requests."""
    force_fifo_every: Count = 8
    """Every n-th pass takes the queue in order: with 8, the passes 8, 16, 24 and so on. Unit:
    passes."""
    cost: Literal["prompt", "uncached"] = "prompt"
    """What a request costs: all tokens of its prompt, or only those that are not in the prefix
    cache."""

    def settings(self) -> PackSettings | None:
        return PackSettings(self.lookahead, self.force_fifo_every, self.cost == "prompt")


AdmissionConfig = Annotated[
    Annotated[SglangAdmissionConfig | PackConfig, Field(discriminator="kind")] | UserClass,
    OrUserClass(),
]


def admission_settings(rule: AdmissionConfig | None) -> PackSettings | None:
    """The settings of a rule; None: there is no rule, or it is the user's own."""
    return None if rule is None or isinstance(rule, UserClass) else rule.settings()
