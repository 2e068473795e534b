"""The `router` key: which replica a request goes to. A name alone means a section of that kind."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    model_validator,
)

from sim.core.messages import describe, unknown_value
from sim.core.units import seconds_to_ns
from sim.user.named_class import OrUserClass, UserClass
from sim.validation import KeysError, StrictModel

_MOST = 2**31 - 1
# 115 days: longer than any session.
_MAX_IDLE_S = 10**7


class _RouterSection(StrictModel):
    def parameters(self) -> Mapping[str, object]:
        """The parameters of the router's constructor."""
        return self.model_dump(exclude={"kind"})

    @property
    def draws(self) -> bool:
        """Whether the router draws random numbers, from the scenario's seed."""
        return False


class RoundRobinConfig(_RouterSection):
    """The replicas take turns."""

    kind: Literal["round-robin"]


class LeastLoadedConfig(_RouterSection):
    """The replica with the fewest unfinished requests. Of several such replicas, the first."""

    kind: Literal["least-loaded"]


class PrefixAwareConfig(_RouterSection):
    """The replica that was sent the longest prefix of the prompt before, while loads are even.

    Rules and defaults are those of SGLang's gateway; docs/how-to/routers.md#prefix-aware lists
    them.
    """

    kind: Literal["prefix-aware"]
    cache_threshold: float = Field(default=0.3, ge=0, le=1)
    """Follow the prefix if more than this share of the prompt was sent to some replica before.
    Unit: share."""
    balance_abs_threshold: int = Field(default=64, ge=0, le=_MOST)
    """Loads are uneven if the largest exceeds the smallest by more than this, and is also more than
    `balance_rel_threshold` times the smallest. Unit: requests."""
    balance_rel_threshold: float = Field(default=1.5, ge=1, le=1000)
    """The other condition for uneven loads, see `balance_abs_threshold`. Unit: factor."""
    max_tree_tokens: int = Field(default=2**24, ge=1, le=2**40)
    """How much of what was sent is remembered for each replica. At least `block_tokens`. Unit:
    tokens."""
    block_tokens: int = Field(default=16, ge=1, le=4096)
    """Prompts are compared in whole blocks of this size. Unit: tokens."""

    @model_validator(mode="after")
    def _check_blocks(self) -> Self:
        if self.max_tree_tokens < self.block_tokens:
            raise KeysError(
                f"max_tree_tokens {self.max_tree_tokens} is less than"
                f" block_tokens {self.block_tokens}",
                "max_tree_tokens",
                "block_tokens",
            )
        return self


class SessionStickyConfig(_RouterSection):
    """Requests of a session go where its first request went."""

    kind: Literal["session-sticky"]
    key: Literal["session", "tenant"] = "session"
    """What a session is: `session` is a conversation or a closed-loop client; `tenant` is all of
    a tenant's requests."""
    assignment: Literal["least-loaded", "random"] = "least-loaded"
    """Where the first request of a session goes, and each request without a session: to the replica
    with the fewest unfinished requests, or to one drawn at random."""
    max_idle_s: Annotated[float, Field(gt=0, le=_MAX_IDLE_S)] | None = 14_400
    """A session is forgotten when it has sent nothing for this long. `null`: never. Unit: s."""

    def parameters(self) -> Mapping[str, object]:
        idle_ns = None if self.max_idle_s is None else seconds_to_ns(self.max_idle_s)
        return {"by_tenant": self.key == "tenant", "max_idle_ns": idle_ns}

    @property
    def draws(self) -> bool:
        return self.assignment == "random"


class RandomConfig(_RouterSection):
    """A replica drawn at random. The scenario's `seed` decides the draws."""

    kind: Literal["random"]

    @property
    def draws(self) -> bool:
        return True


class PowerOfTwoConfig(_RouterSection):
    """Of two replicas drawn at random, the one with fewer unfinished requests.

    The scenario's `seed` decides the draws.
    """

    kind: Literal["power-of-two"]

    @property
    def draws(self) -> bool:
        return True


class KvAwareConfig(_RouterSection):
    """The replica with the least to compute and the least KV in use, by events of its cache.

    Rules and defaults are those of NVIDIA Dynamo; docs/how-to/routers.md#kv-aware lists them.
    """

    kind: Literal["kv-aware"]
    event_delay_s: float = Field(default=0, ge=0, le=_MAX_IDLE_S)
    """How long an event of a cache (a block was stored, or removed) is under way to the router.
    Unit: s."""
    overlap_credit: float = Field(default=1, ge=0, le=1)
    """How much of a cached block counts as saved. 0: caches do not matter. Unit: share."""
    prefill_load_scale: float = Field(default=1, ge=0, le=1e6)
    """Weight of the blocks to compute against the blocks of requests that are not over. Unit:
    factor."""
    track_prefill_tokens: bool = True
    """Count what a replica has to compute for other requests."""
    track_active_blocks: bool = True
    """Count the prompt blocks of a replica's requests that are not over."""
    temperature: float = Field(default=0, ge=0, le=1e6)
    """0: the lowest cost is chosen. More: replicas are drawn with weights exp(-x / temperature),
    where x is a replica's cost above the lowest, as a share of the largest such difference."""

    def parameters(self) -> Mapping[str, object]:
        parameters = self.model_dump(exclude={"kind", "event_delay_s"})
        return {**parameters, "event_delay_ns": seconds_to_ns(self.event_delay_s)}

    @property
    def draws(self) -> bool:
        return self.temperature > 0


_Section = (
    RoundRobinConfig
    | LeastLoadedConfig
    | PrefixAwareConfig
    | SessionStickyConfig
    | RandomConfig
    | PowerOfTwoConfig
    | KvAwareConfig
)
ROUTER_KINDS = tuple(
    get_args(section.model_fields["kind"].annotation)[0] for section in get_args(_Section)
)


def _section_of(value: Any) -> Any:
    if isinstance(value, str):
        if value not in ROUTER_KINDS:
            raise ValueError(unknown_value("router", value, ROUTER_KINDS))
        return {"kind": value}
    if not isinstance(value, dict | StrictModel):
        raise ValueError(f"must be a name or a mapping, got {describe(value)}")
    return value


def _shortest(section: _Section, dump: SerializerFunctionWrapHandler) -> Any:
    """The name alone if all keys have their defaults, so that equal routers have equal hashes."""
    is_default = section == type(section).model_validate({"kind": section.kind})
    return section.kind if is_default else dump(section)


RouterConfig = Annotated[
    Annotated[
        Annotated[_Section, Field(discriminator="kind")],
        BeforeValidator(_section_of),
        WrapSerializer(_shortest),
    ]
    | UserClass,
    OrUserClass(),
]
