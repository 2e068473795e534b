"""All routers by name, and how a scenario's section becomes one."""

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
    """What a scenario says of its router."""

    @property
    def kind(self) -> str:
        """Its name in `ROUTERS`."""
        ...

    def parameters(self) -> Mapping[str, object]:
        """What to make it with."""
        ...


def make_router(section: RouterSection) -> Router:
    """A router for one run: routers remember."""
    return ROUTERS[section.kind](**section.parameters())
