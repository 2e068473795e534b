"""The `pools` key: servers of several kinds, such as prefill servers and decode servers."""

from typing import Annotated, Any, Literal

from pydantic import Field

from sim.strict_model import StrictModel

_Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\s./\\]+$")]
# A part of a section. It is checked where it is merged with what all pools share.
_Part = dict[str, Any]


class PoolSection(StrictModel):
    """A pool of identical servers.

    Its keys are merged over the scenario's keys of the same names, which all pools share: a pool
    with `scheduler: {page_size: 64}` has all other settings of the scenario's `scheduler`. A
    section of another `kind` takes the place of the shared one.
    """

    role: Literal["prefill", "decode", "both"]
    """What its servers compute: prompts (`prefill`), all that follows (`decode`), or whole requests
    (`both`). Pools of role `both` stand alone; the other two need each other
    (docs/explanation/disaggregation.md)."""
    replicas: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Number of servers; with `autoscale`, those at the beginning. Unit: servers."""
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


Pools = Annotated[dict[_Name, PoolSection], Field(min_length=1)]
"""Pools by name."""
