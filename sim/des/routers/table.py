"""All routers by name, and how to make one from a scenario's `router` section."""

from collections.abc import Callable, Mapping
from typing import Protocol

from sim.des.routers.prefix_aware import PrefixAware
from sim.des.routers.router import LeastLoaded, RoundRobin, Router
from sim.des.routers.session_sticky import SessionSticky

ROUTERS: Mapping[str, Callable[..., Router]] = {
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    "prefix-aware": PrefixAware,
    "session-sticky": SessionSticky,
}


class RouterSection(Protocol):
    """The scenario's settings of its router."""

    @property
    def kind(self) -> str:
        """The router's name in `ROUTERS`."""

    def parameters(self) -> Mapping[str, object]:
        """Keyword arguments for the router's constructor."""


def make_router(section: RouterSection) -> Router:
    """A new router, for one run: routers remember earlier requests."""
    return ROUTERS[section.kind](**section.parameters())
