"""The `fairness` key of the scheduler section: the rule that keeps requests from starving."""

from typing import Annotated, Literal

from pydantic import Field

from sim.core.units import ms_to_ns
from sim.sglang.scheduler.fairness import AgingTokens, FairnessSettings, FairnessT, ForceFifo, KLpm
from sim.strict_model import StrictModel

_MOST = 2**31 - 1
# A day: longer than any simulated run.
_MOST_MS = 86_400_000

_Count = Annotated[int, Field(ge=1, le=_MOST)]


class FairnessTConfig(StrictModel):
    """`kind: fairness_t`: requests that have waited for `t_ms` go first; null: no rule."""

    kind: Literal["fairness_t"]
    t_ms: Annotated[float, Field(ge=0, le=_MOST_MS)] | None

    def settings(self) -> FairnessSettings | None:
        return None if self.t_ms is None else FairnessT(ms_to_ns(self.t_ms))


class KLpmConfig(StrictModel):
    """`kind: k_lpm`: the oldest request, then `k` - 1 in the policy's order, and so on."""

    kind: Literal["k_lpm"]
    k: _Count

    def settings(self) -> FairnessSettings | None:
        return KLpm(self.k)


class AgingTokensConfig(StrictModel):
    """`kind: aging_tokens_per_pass`: each pass waited counts like `tokens` cached tokens."""

    kind: Literal["aging_tokens_per_pass"]
    tokens: _Count

    def settings(self) -> FairnessSettings | None:
        return AgingTokens(self.tokens)


class ForceFifoConfig(StrictModel):
    """`kind: force_fifo_every`: every `passes`-th pass is in order of arrival."""

    kind: Literal["force_fifo_every"]
    passes: _Count

    def settings(self) -> FairnessSettings | None:
        return ForceFifo(self.passes)


FairnessConfig = Annotated[
    FairnessTConfig | KLpmConfig | AgingTokensConfig | ForceFifoConfig,
    Field(discriminator="kind"),
]
