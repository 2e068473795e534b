"""All routers by name, and how to make one from a scenario's `router` section."""

from collections.abc import Callable, Mapping
from pathlib import Path

from sim.des.routers.kv_aware import KvAware
from sim.des.routers.power_of_two import PowerOfTwo
from sim.des.routers.prefix_aware import PrefixAware
from sim.des.routers.random_choice import RandomChoice
from sim.des.routers.router import LeastLoaded, RoundRobin, Router
from sim.des.routers.session_sticky import SessionSticky
from sim.des.routers.user_router import make_user_router
from sim.scenario.router_section import RouterConfig
from sim.user.named_class import UserClass
from sim.workload.rng import RandomStreams

ROUTERS: Mapping[str, Callable[..., Router]] = {
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    "prefix-aware": PrefixAware,
    "session-sticky": SessionSticky,
    "random": RandomChoice,
    "power-of-two": PowerOfTwo,
    "kv-aware": KvAware,
}


def make_router(section: RouterConfig, folder: Path = Path(), seed: int = 0) -> Router:
    """A new router, for one run: routers remember earlier requests.

    Args:
        section: the scenario's settings.
        folder: the scenario's folder, which is searched for a user's own class.
        seed: the scenario's seed, for routers that draw.

    Raises:
        InputError: the user's own class cannot be loaded.
    """
    if isinstance(section, UserClass):
        return make_user_router(section, folder)
    parameters = dict(section.parameters())
    if section.draws:
        parameters["random"] = RandomStreams(seed).stream("router")
    return ROUTERS[section.kind](**parameters)
