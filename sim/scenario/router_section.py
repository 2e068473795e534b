"""The key `router`: which of several servers a request goes to.

A router's name alone means a section of that kind.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    model_validator,
)

from sim.core.errors import describe, unknown_value
from sim.core.routing import Knowledge, ScoreWeights, Spill, TierCredits
from sim.core.units import seconds_to_ns
from sim.user.objects import OrUserClass, UserClass
from sim.validation import ByKind, KeysError, StrictModel

_MOST = 2**31 - 1
# 115 days: longer than any session.
_MAX_IDLE_S = 10**7


class _RouterSection(StrictModel):
    def parameters(self) -> Mapping[str, object]:
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
    """Requests of a session go where its first request went, unless that replica has too much.

    docs/how-to/routers.md#session-sticky has the rules.
    """

    kind: Literal["session-sticky"]
    key: Literal["session", "tenant"] = "session"
    """What a session is: `session` is a conversation or a closed-loop client; `tenant` is all of
    a tenant's requests."""
    assignment: Literal["least-loaded", "random"] = "least-loaded"
    """Where the first request of a session goes, and each request without a session: to the replica
    with the fewest unfinished requests, or to one drawn at random."""
    max_idle_s: Annotated[float, Field(gt=0, le=_MAX_IDLE_S)] | None = 14_400
    """A session is forgotten when it has sent nothing for this long. `null`: never. Unit: s."""
    spill_load_factor: Annotated[float, Field(ge=1, le=1000)] | None = None
    """A request spills to the replica with the fewest unfinished requests if its session's replica
    has more than this many times the mean of all, the new request counted. `null`: none does. Unit:
    factor."""
    spill_above: int = Field(default=0, ge=0, le=_MOST)
    """The other condition: the session's replica has more unfinished requests than this. Unit:
    requests."""
    after_spill: Literal["return", "move"] = "return"
    """Where the session's later requests go: to the replica that it had before, or to that of the
    request that was spilled."""

    @model_validator(mode="after")
    def _check_spill(self) -> Self:
        if self.spill_load_factor is None:
            for key in ("spill_above", "after_spill"):
                if key in self.model_fields_set:
                    raise KeysError(f"{key} needs spill_load_factor", key)
        return self

    def parameters(self) -> Mapping[str, object]:
        idle_ns = None if self.max_idle_s is None else seconds_to_ns(self.max_idle_s)
        spill = None
        if self.spill_load_factor is not None:
            moves = self.after_spill == "move"
            spill = Spill(self.spill_load_factor, self.spill_above, moves)
        return {"by_tenant": self.key == "tenant", "max_idle_ns": idle_ns, "spill": spill}

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


class _CacheAware(_RouterSection):
    kv_events: bool = True
    """Learn from the caches' events what replicas have cached. Without: only from what was sent to
    them, which `predicted_ttl_s` and `max_predicted_tokens` limit."""
    event_delay_s: float = Field(default=0, ge=0, le=_MAX_IDLE_S)
    """How long an event of a cache (a block was stored, or removed) is under way to the router.
    Unit: s."""
    predicted_ttl_s: Annotated[float, Field(gt=0, le=_MAX_IDLE_S)] | None = None
    """A prompt that is sent to a replica counts as cached there for this long. `null`: with
    `kv_events`, not at all; without, as long as it is remembered. Unit: s."""
    max_predicted_tokens: Annotated[int, Field(ge=1, le=2**40)] | None = None
    """How much of what was sent is remembered for each replica; what was sent least recently is
    forgotten. `null`: as much as its KV pool holds. Unit: tokens."""

    @model_validator(mode="after")
    def _check_predictions(self) -> Self:
        if self.kv_events and self.predicted_ttl_s is None and self.max_predicted_tokens:
            raise KeysError(
                "max_predicted_tokens needs predicted_ttl_s or kv_events: false",
                "max_predicted_tokens",
            )
        return self

    @property
    def knowledge(self) -> Knowledge:
        ttl_s = self.predicted_ttl_s
        return Knowledge(
            events=self.kv_events,
            event_delay_ns=seconds_to_ns(self.event_delay_s),
            predicts=not self.kv_events or ttl_s is not None,
            predicted_ttl_ns=None if ttl_s is None else seconds_to_ns(ttl_s),
            predicted_tokens=self.max_predicted_tokens,
        )


class KvAwareConfig(_CacheAware):
    """The replica with the least to compute and the least KV in use, by events of its cache.

    Rules and defaults are those of NVIDIA Dynamo; docs/how-to/routers.md#kv-aware lists them.
    """

    kind: Literal["kv-aware"]
    overlap_credit: float = Field(default=1, ge=0, le=1)
    """How much of a block that is cached on the device counts as saved. 0: such blocks do not
    matter. Unit: share."""
    host_credit: float = Field(default=0.75, ge=0, le=1)
    """The same for a block in host memory, behind those on the device. Unit: share."""
    storage_credit: float = Field(default=0.25, ge=0, le=1)
    """The same for a block in the store, behind those on the device and in host memory. Unit:
    share."""
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
        weights = ("prefill_load_scale", "track_prefill_tokens", "track_active_blocks")
        return {
            "knowledge": self.knowledge,
            "credit": TierCredits(self.overlap_credit, self.host_credit, self.storage_credit),
            **self.model_dump(include={*weights, "temperature"}),
        }

    @property
    def draws(self) -> bool:
        return self.temperature > 0


class ScoredConfig(_CacheAware):
    """The replica with the highest score: of its prefix cache, its queue, and its KV in use.

    Rules and defaults are those of llm-d's router; docs/how-to/routers.md#scored lists them. The
    scenario's `seed` decides among equal scores.
    """

    kind: Literal["scored"]
    prefix_weight: float = Field(default=2, ge=0, le=1e6)
    """Weight of the share of the prompt that is cached. 0: caches do not matter. Unit: factor."""
    queue_weight: float = Field(default=1, ge=0, le=1e6)
    """Weight of the queue: 1 for the shortest, 0 for the longest. Unit: factor."""
    kv_usage_weight: float = Field(default=1, ge=0, le=1e6)
    """Weight of the share of the KV pool that no request uses. Unit: factor."""
    metrics_interval_s: float = Field(default=0.05, ge=0, le=_MAX_IDLE_S)
    """Queues and KV in use are read anew if they were read this long ago. Unit: s."""
    host_credit: float = Field(default=0.8, ge=0, le=1)
    """What a block in host memory is worth, behind those on the device, of which each is worth 1.
    Unit: share."""
    storage_credit: float = Field(default=1, ge=0, le=1)
    """The same for a block in the store, behind those on the device and in host memory. Unit:
    share."""
    max_prefix_tokens: Annotated[int, Field(ge=1, le=2**40)] | None = None
    """Only so much of a prompt is compared with what is cached. `null`: all of it. Unit: tokens."""

    def parameters(self) -> Mapping[str, object]:
        knowledge = self.knowledge
        if not self.prefix_weight:
            knowledge = knowledge._replace(events=False, predicts=False)
        return {
            "knowledge": knowledge,
            "credit": TierCredits(1.0, self.host_credit, self.storage_credit),
            "weights": ScoreWeights(self.prefix_weight, self.queue_weight, self.kv_usage_weight),
            "metrics_interval_ns": seconds_to_ns(self.metrics_interval_s),
            "max_prefix_tokens": self.max_prefix_tokens,
        }

    @property
    def draws(self) -> bool:
        return True


_Section = (
    RoundRobinConfig
    | LeastLoadedConfig
    | PrefixAwareConfig
    | SessionStickyConfig
    | RandomConfig
    | PowerOfTwoConfig
    | KvAwareConfig
    | ScoredConfig
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
        Annotated[_Section, ByKind()],
        BeforeValidator(_section_of),
        WrapSerializer(_shortest),
    ]
    | UserClass,
    OrUserClass(),
]
