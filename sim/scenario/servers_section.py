"""The keys `pools` and `transfer`: which servers a request visits, and how its KV moves."""

import math
import re
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
)

from sim.core.declared import MAX_COUNT
from sim.core.errors import describe
from sim.validation import KeysError, StrictModel

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
    """Refuse missing roles, and names that cannot be parts of key paths, metrics and files."""
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
