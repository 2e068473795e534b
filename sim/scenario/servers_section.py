"""The keys `router`, `pools` and `transfer`: which servers a request visits, and how its KV moves.

A router's name alone means a section of that kind.
"""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    model_validator,
)

from sim.core.declared import MAX_COUNT
from sim.core.errors import describe, unknown_value
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
        Annotated[_Section, ByKind()],
        BeforeValidator(_section_of),
        WrapSerializer(_shortest),
    ]
    | UserClass,
    OrUserClass(),
]


_NAME = re.compile(r"[\w-]{1,100}")
# A part of a section. It is checked where it is merged with what all pools share.
_Part = dict[str, Any]


class PoolSection(StrictModel):
    """A pool of identical servers.

    Its keys are merged over the scenario's keys of the same names, which all pools share: a pool
    with `scheduler: {page_size: 64}` has all other settings of the scenario's `scheduler`. A
    section of another `kind` or `family` takes the place of the shared one.
    """

    role: Literal["prefill", "decode", "both"]
    """What its servers compute: prompts (`prefill`), all that follows (`decode`), or whole requests
    (`both`). Pools of role `both` stand alone; the other two need each other
    (docs/explanation/disaggregation.md)."""
    replicas: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Number of servers; with `autoscale`, those at the beginning. Pools with a number of their own
    make no use of the scenario's `replicas`. Unit: servers."""
    autoscale: _Part | None = None
    """As the scenario's `autoscale`, for this pool alone."""
    model: str | None = None
    """As the scenario's `model`."""
    hardware: str | None = None
    """As the scenario's `hardware`."""
    latency: _Part | None = None
    """As the scenario's `latency`."""
    host: _Part | str | None = None
    """As the scenario's `host`."""
    scheduler: _Part | None = None
    """As the scenario's `scheduler`. All pools have one family."""
    router: _Part | str | None = None
    """Which server of the pool a request goes to, as the scenario's `router`. Pools of the same
    role share one router."""


def _check_names(pools: Any) -> Any:
    """Pools' names are parts of key paths, of metrics' names and of file names."""
    if not isinstance(pools, dict):
        return pools
    seen: dict[str, str] = {}
    for name, pool in pools.items():
        if not _NAME.fullmatch(name):
            rule = "must have 1 to 100 letters, digits, - and _ only"
            raise KeysError(f"a pool's name {rule}, got {describe(name)}", name)
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise KeysError(f"{other} and {name} differ in case only", name)
        others = [key for key in pools if key != name]
        if isinstance(pool, dict) and "role" not in pool and others:
            known = ", ".join(others)
            raise KeysError(f"pool {name} has no role (other pools: {known})", name)
    return pools


Pools = Annotated[dict[str, PoolSection], Field(min_length=1), BeforeValidator(_check_names)]
"""Pools by name."""


_UNLIMITED: Literal["unlimited"] = "unlimited"


def _word_for_infinity(value: Any) -> Any:
    """Python's infinity has no place in JSON, and scenario files have none."""
    return _UNLIMITED if value == math.inf else value


_Bandwidth = Annotated[
    # At least 1 MB/s; at most more than any machine has.
    Annotated[float, Field(ge=0.001, le=10**9)] | Literal["unlimited"],
    BeforeValidator(_word_for_infinity),
]


class TransferSection(StrictModel):
    """How KV gets from prefill servers to decode servers.

    Transfers that share a link at a time share its bandwidth
    (docs/explanation/disaggregation.md#transfers).
    """

    bandwidth_gb_s: _Bandwidth
    """Bandwidth of each server: all its network interfaces together, in each direction. At
    least 0.001. `unlimited`: a transfer takes `latency_s` alone, unless `fabric_gb_s` limits it.
    Unit: GB/s, that is 10**9 bytes a second."""
    latency_s: Annotated[float, Field(ge=0, le=60)] = 0.0
    """Time of each transfer before its first byte is sent. Unit: s."""
    fabric_gb_s: _Bandwidth = _UNLIMITED
    """Bandwidth of all transfers of the deployment together. At least 0.001, or `unlimited`. Unit:
    GB/s."""
    send_queues: Annotated[int, Field(ge=0, le=4096)] | None = None
    """Queues of each sender. A queue sends one transfer after another, and all that a sender has
    for one target go into the same queue. 0: a sender begins all its transfers at once. Without it:
    as the engine does, 4 with SGLang, 0 with vLLM. Unit: queues."""
    timeout_s: Annotated[float, Field(gt=0, le=10**7)] | None = None
    """A transfer that has not arrived after this long fails; time in a queue counts. Without it:
    never. Unit: s."""
    failure_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of attempts that fail. An attempt's failure shows when its last byte should have
    arrived. The scenario's `seed` and the request decide the draws, and not the order of transfers.
    Unit: share."""
    max_retries: Annotated[int, Field(ge=0, le=1000)] = 0
    """How often a transfer is attempted again before it fails for good. Unit: attempts."""
    decode_server_chosen: Literal["at_arrival", "after_prefill"] | None = None
    """When a request's decode server is chosen. Without it: as the engine does, `at_arrival` with
    SGLang, where both servers get the request at once, and `after_prefill` with vLLM. SGLang cannot
    do the latter."""
    bytes_per_token: Annotated[int, Field(ge=0, le=MAX_COUNT)] | None = None
    """Bytes on the links for each token of a prompt, of all GPUs of the receiver together. Without
    it: as the scenario's model has it. Unit: bytes."""
    bytes_per_request: Annotated[int, Field(ge=0, le=2**40)] | None = None
    """Bytes that are sent for each request beside those of its tokens: states of linear attention.
    Without it: as the scenario's model has it, or 0 with `bytes_per_token`. Unit: bytes."""

    @property
    def link_limit_gb_s(self) -> float:
        """Bandwidth of a server's links; infinity: no limit."""
        return _limit(self.bandwidth_gb_s)

    @property
    def fabric_limit_gb_s(self) -> float:
        """Bandwidth of the fabric; infinity: no limit."""
        return _limit(self.fabric_gb_s)


def _limit(bandwidth: float | str) -> float:
    return math.inf if isinstance(bandwidth, str) else bandwidth
