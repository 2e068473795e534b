"""What a scenario's `workload:` section may say: one model a kind of traffic."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.strict_model import KeysError, StrictModel
from sim.workload.arrivals import Arrivals, ThinkTime
from sim.workload.lengths import Length, LengthDistribution
from sim.workload.limits import MAX_REQUESTS, MAX_TOKENS
from sim.workload.outputs import MaxNewTokens, PredictedOutput
from sim.workload.prefixes import Prefixes

DEFAULT_BLOCK_SIZE = 512

_Count = Annotated[int, Field(ge=1, le=MAX_REQUESTS)]
_Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]


class CommonConfig(StrictModel):
    """What every kind takes.

    Attributes:
        tenant: whose requests they are.
        max_new_tokens: the clients' limit: a number, a factor of the output length, or None for
            the trace's own limit or else the output length.
        predicted_output: how good the guess of the output length is; None: no guess.
    """

    tenant: str = ""
    max_new_tokens: MaxNewTokens | None = None
    predicted_output: PredictedOutput | None = None


class TraceConfig(CommonConfig):
    """A recorded trace. `path` is relative to the scenario file; `limit` keeps the first rows.

    Arrival times are multiplied by `time_scale`: 0.25 is four times as fast.
    """

    kind: Literal["trace"]
    format: Literal["mooncake", "azure", "servetwin", "autobench"]
    path: Annotated[str, Field(min_length=1)]
    limit: _Count | None = None
    time_scale: Annotated[float, Field(gt=0, le=10**6)] = 1.0
    block_size: Annotated[int, Field(ge=1, le=1 << 20)] | None = None

    @model_validator(mode="after")
    def _block_size_has_blocks(self) -> Self:
        if self.block_size is not None and self.format != "mooncake":
            raise KeysError(
                f"block_size goes with format mooncake only, not {self.format}",
                "block_size",
                "format",
            )
        return self


class SyntheticConfig(CommonConfig):
    """Independent requests. `prompt_tokens` counts what follows the prefixes."""

    kind: Literal["synthetic"]
    num_requests: _Count
    arrivals: Arrivals
    prompt_tokens: LengthDistribution
    output_tokens: LengthDistribution
    prefixes: Prefixes | None = None
    system_prompt_tokens: _Tokens = 0


class SystemPrompts(StrictModel):
    """`count` different system prompts of `tokens` tokens; a session draws one of them."""

    count: Annotated[int, Field(ge=1, le=10**6)]
    tokens: Length


class SessionsConfig(CommonConfig):
    """Conversations: a turn's prompt is the whole previous prompt, its answer, and new text.

    With `closed_loop` a turn is sent a think time after the previous one finished; without, a
    think time after the previous one was sent.
    """

    kind: Literal["sessions"]
    sessions: _Count
    arrivals: Arrivals
    turns: LengthDistribution
    user_tokens: LengthDistribution
    output_tokens: LengthDistribution
    think_s: ThinkTime
    system_prompts: SystemPrompts | None = None
    closed_loop: bool = True


class ClientsConfig(CommonConfig):
    """Clients that send their next request a think time after their last one finished.

    All of them send their first request at time 0.
    """

    kind: Literal["clients"]
    clients: _Count
    requests_per_client: _Count
    think_s: ThinkTime
    prompt_tokens: LengthDistribution
    output_tokens: LengthDistribution
    prefixes: Prefixes | None = None
    system_prompt_tokens: _Tokens = 0

    @model_validator(mode="after")
    def _not_too_many(self) -> Self:
        if self.clients * self.requests_per_client > MAX_REQUESTS:
            raise KeysError(
                f"clients x requests_per_client is above {MAX_REQUESTS}",
                "clients",
                "requests_per_client",
            )
        return self


UnmixedConfig = Annotated[
    TraceConfig | SyntheticConfig | SessionsConfig | ClientsConfig, Field(discriminator="kind")
]


class MixPart(StrictModel):
    """One tenant's traffic."""

    tenant: Annotated[str, Field(min_length=1)]
    workload: UnmixedConfig

    @model_validator(mode="after")
    def _one_tenant(self) -> Self:
        if self.workload.tenant:
            raise KeysError(
                "a part's workload takes its tenant from the part", "workload", "tenant"
            )
        return self


class MixConfig(StrictModel):
    """Several tenants at once, by arrival; equal times keep the order of the parts."""

    kind: Literal["mix"]
    parts: Annotated[tuple[MixPart, ...], Field(strict=False, min_length=1)]

    @model_validator(mode="after")
    def _rids_stay_unique(self) -> Self:
        tenants = [part.tenant for part in self.parts]
        if len(set(tenants)) < len(tenants):
            raise KeysError("two parts have the same tenant", "parts")
        for tenant in tenants:
            # Request 1-0 of tenant "a" and request 0 of tenant "a-1" would both be "a-1-0".
            clash = next((other for other in tenants if other.startswith(f"{tenant}-")), None)
            if clash is not None:
                raise ValueError(f"tenants {tenant!r} and {clash!r} could give equal request ids")
        return self


WorkloadConfig = Annotated[
    TraceConfig | SyntheticConfig | SessionsConfig | ClientsConfig | MixConfig,
    Field(discriminator="kind"),
]
