"""All routers by name, how one of them or of a user's is made, and how it learns of caches."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sim.core.errors import InputError, KeyPath
from sim.core.request import RequestSpec
from sim.des.clock import Clock
from sim.des.replicas.replica import Replica
from sim.des.routers.caches import Caches
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
from sim.des.routers.scored import Scored, ServerMetrics
from sim.des.traffic import SimulationLog
from sim.scenario.router_section import RouterConfig
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
    "scored": Scored,
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
        self.predicted_tokens: int | None = None
        self._seen: tuple[SeenReplica, ...] = ()

    def choose(self, spec: RequestSpec, replicas: Sequence[RoutedReplica]) -> int:
        if not self._seen:
            self._seen = tuple(map(SeenReplica, replicas))
        chosen = self._user.call("choose", spec, self._seen)
        if type(chosen) is not int or not 0 <= chosen < len(replicas):
            raise self._user.returned(
                "choose", f"{shown(chosen)}, not the number of a replica, 0 to {len(replicas) - 1}"
            )
        predicted = self._user.get("predicted_tokens") if self.looks_at_loads else None
        if predicted is not None and (type(predicted) is not int or predicted < 0):
            what = f"{shown(predicted)}, not a number of tokens"
            raise self._user.loaded.fail(f"{self._user.loaded.name}.predicted_tokens is {what}")
        self.predicted_tokens = predicted
        return chosen

    def changed(self, kept: Sequence[int]) -> None:
        """The replicas are others from now on; a user's router that has this method is told."""
        self._seen = ()
        if self._user.has("changed"):
            self._user.call("changed", list(kept))


def connect(
    router: Router, replicas: Sequence[Replica], clock: Clock, reports: SimulationLog
) -> None:
    """Let the router learn what these replicas cache, how far its requests are, and how loaded.

    For routers that look at loads alone nothing happens. Call it before any request arrives.

    `replicas` are in the order of the router's choices; `reports` is where they report steps and
    ends.

    Raises InputError: the caches of these servers report no events.
    """
    if isinstance(router, KvAware):
        reports.followers.append(router)
    elif isinstance(router, Scored):
        router.read_metrics = lambda: [_metrics(replica) for replica in replicas]
        for replica in replicas:
            # Steps that pass as one take all their pages at once.
            replica.pass_single_steps()
    else:
        return
    for number, replica in enumerate(replicas):
        for engine in replica.engines:
            router.caches.block_tokens = engine.scheduler.memory.page_size
        pool_tokens = sum(engine.scheduler.memory.pool_tokens for engine in replica.engines)
        router.caches.remember(number, pool_tokens)
    if router.caches.knowledge.events:
        _listen(router.caches, replicas, clock)


def _metrics(replica: Replica) -> ServerMetrics:
    """Of all ranks together."""
    schedulers = [engine.scheduler for engine in replica.engines]
    num_waiting = sum(scheduler.num_waiting for scheduler in schedulers)
    memories = [scheduler.memory for scheduler in schedulers]
    num_free = sum(memory.free_tokens + memory.evictable_tokens for memory in memories)
    return ServerMetrics(num_waiting, 1 - num_free / sum(m.pool_tokens for m in memories))


def _listen(caches: Caches, replicas: Sequence[Replica], clock: Clock) -> None:
    """Let a router hear of each tier of each cache."""
    index = caches.index
    stores: dict[int, set[int]] = {}
    for number, replica in enumerate(replicas):
        for engine in replica.engines:
            memory, known = engine.scheduler.memory, index.add_cache(number)
            tiers = (index.feed(held, lambda: clock.now_ns) for held in (known.device, known.host))
            keys_of = memory.listen(*tiers)
            if keys_of is None:
                raise InputError(
                    "the router needs cache events, which these servers do not report",
                    key=_KEY,
                )
            caches.keys_of = keys_of
            store = memory.store
            if store is not None:
                if id(store) not in stores:
                    stores[id(store)] = known.storage
                    store.listeners.append(index.feed(known.storage, lambda: clock.now_ns))
                known.storage = stores[id(store)]
            if memory.reserving_evicts or engine.scheduler.repeats_drafts:
                # Else an eviction would be reported only when a replica's wait is over, which
                # depends on how many steps pass as one.
                replica.pass_single_steps()
