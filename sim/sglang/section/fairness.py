"""The `fairness` key of the scheduler section: the rule that keeps requests from starving."""

from typing import Annotated, Literal

from pydantic import Field

from sim.core.told import Count
from sim.core.units import ms_to_ns
from sim.sglang.scheduler.waiting.fairness import (
    AgingTokens,
    FairnessSettings,
    FairnessT,
    ForceFifo,
    KLpm,
)
from sim.user.named_class import OrUserClass, UserClass
from sim.validation.strict_model import StrictModel

# A day: longer than any simulated run.
_MOST_MS = 86_400_000


class FairnessTConfig(StrictModel):
    """Requests that have waited for a time T go first, oldest first."""

    kind: Literal["fairness_t"]
    t_ms: Annotated[float, Field(ge=0, le=_MOST_MS)] | None
    """The time T. 0 is first come, first served; `null` is the policy alone. Unit: ms."""

    def settings(self) -> FairnessSettings | None:
        return None if self.t_ms is None else FairnessT(ms_to_ns(self.t_ms))


class KLpmConfig(StrictModel):
    """The oldest request goes first, then k - 1 requests in the policy's order, and so on."""

    kind: Literal["k_lpm"]
    k: Count
    """Length of the cycle. 1 is first come, first served. Unit: requests."""

    def settings(self) -> FairnessSettings | None:
        return KLpm(self.k)


class AgingTokensConfig(StrictModel):
    """Most cached tokens first, with a credit for each pass waited.

    Only with schedule policy `lpm`.
    """

    kind: Literal["aging_tokens_per_pass"]
    tokens: Count
    """Credit of a request for each pass that it waited. Unit: tokens."""

    def settings(self) -> FairnessSettings | None:
        return AgingTokens(self.tokens)


class ForceFifoConfig(StrictModel):
    """Every n-th pass takes the queue in order of arrival."""

    kind: Literal["force_fifo_every"]
    passes: Count
    """The number n. 1: every pass. Unit: passes."""

    def settings(self) -> FairnessSettings | None:
        return ForceFifo(self.passes)


FairnessConfig = Annotated[
    Annotated[
        FairnessTConfig | KLpmConfig | AgingTokensConfig | ForceFifoConfig,
        Field(discriminator="kind"),
    ]
    | UserClass,
    OrUserClass(),
]


def fairness_settings(rule: FairnessConfig | None) -> FairnessSettings | None:
    """The settings of a rule; None: there is no rule, or it is the user's own."""
    return None if rule is None or isinstance(rule, UserClass) else rule.settings()
