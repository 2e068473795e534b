"""The `pools` key: servers of several kinds, such as prefill servers and decode servers."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from sim.core.messages import describe
from sim.validation.strict_model import KeysError, StrictModel

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
