"""All routers by name, how one of them or of a user's is made, and how it learns of caches."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sim.core.errors import InputError, KeyPath
from sim.core.request import RequestSpec
from sim.des.clock import Clock
from sim.des.replicas.replica import Replica
from sim.des.routers.kv_aware import KvAware
from sim.des.routers.prefix_aware import PrefixAware
from sim.des.routers.router import (
    LeastLoaded,
    PowerOfTwo,
    RandomChoice,
    RoundRobin,
    RoutedReplica,
    Router,
    SessionSticky,
)
from sim.des.traffic import SimulationLog
from sim.engine.page_pool import KeysOf
from sim.scenario.servers_section import RouterConfig
from sim.user.objects import ClassKind, UserClass, UserObject, load_class, shown
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
# What the class of a user's own router must have, and the key that names it.
ROUTER = ClassKind("router", "", {"choose": "spec, replicas"})
_KEY: KeyPath = ("router",)


def make_router(section: RouterConfig, folder: Path = Path(), seed: int = 0) -> Router:
    """A new router, for one run: routers remember earlier requests.

    The scenario's folder is searched for a user's own class; its seed is for routers that draw.

    Raises InputError: the user's own class cannot be loaded, or is no router.
    """
    if isinstance(section, UserClass):
        return GuardedRouter(load_class(section, ROUTER, key=_KEY, folder=folder).make())
    parameters = dict(section.parameters())
    if section.draws:
        parameters["random"] = RandomStreams(seed).stream("router")
    return ROUTERS[section.kind](**parameters)


class SeenReplica:
    """A replica as a user's router sees it: nothing but its load."""

    def __init__(self, replica: RoutedReplica) -> None:
        self._replica = replica

    @property
    def num_unfinished(self) -> int:
        return self._replica.num_unfinished


class GuardedRouter:
    """A user's router; raises InputError where it raises or chooses no replica."""

    def __init__(self, user: UserObject) -> None:
        self._user = user
        self.looks_at_loads = bool(user.get("looks_at_loads", True))
        self._seen: tuple[SeenReplica, ...] = ()

    def choose(self, spec: RequestSpec, replicas: Sequence[RoutedReplica]) -> int:
        if not self._seen:
            self._seen = tuple(map(SeenReplica, replicas))
        chosen = self._user.call("choose", spec, self._seen)
        if type(chosen) is not int or not 0 <= chosen < len(replicas):
            raise self._user.returned(
                "choose", f"{shown(chosen)}, not the number of a replica, 0 to {len(replicas) - 1}"
            )
        return chosen

    def changed(self, kept: Sequence[int]) -> None:
        """The replicas are others from now on; a user's router that has this method is told."""
        self._seen = ()
        if self._user.has("changed"):
            self._user.call("changed", list(kept))


def connect(
    router: Router, replicas: Sequence[Replica], clock: Clock, reports: SimulationLog
) -> None:
    """Let the router learn what these replicas cache, and how far its requests are.

    Only a kv-aware router needs this; for others nothing happens. Call it before any request
    arrives.

    `replicas` are in the order of the router's choices; `reports` is where they report steps and
    ends.

    Raises InputError: the caches of these servers report no events.
    """
    if not isinstance(router, KvAware):
        return
    keys_of: KeysOf | None = None
    for number, replica in enumerate(replicas):
        for engine in replica.engines:
            memory = engine.scheduler.memory
            keys_of = memory.listen(router.index.add_cache(number, lambda: clock.now_ns))
            if keys_of is None:
                raise InputError(
                    "kv-aware needs cache events, which these servers do not report",
                    key=_KEY,
                )
            if memory.reserving_evicts:
                # Else an eviction would be reported only when a replica's wait is over, which
                # depends on how many steps pass as one.
                replica.pass_single_steps()
            router.block_tokens = memory.page_size
    if keys_of is not None:
        router.keys_of = keys_of
    reports.followers.append(router)
