"""Connects a router that follows what replicas cache with the caches of a simulation."""

from collections.abc import Sequence

from sim.core.errors import InputError
from sim.des.clock import Clock
from sim.des.replicas.replica import Replica
from sim.des.routers.kv_aware import KvAware
from sim.des.routers.router import Router
from sim.des.traffic import SimulationLog
from sim.engine.page_pool import KeysOf


def connect(
    router: Router, replicas: Sequence[Replica], clock: Clock, reports: SimulationLog
) -> None:
    """Let the router learn what these replicas cache, and how far its requests are.

    Nothing happens for routers that do not ask for it. Call it before any request arrives.

    Args:
        router: the router.
        replicas: all replicas that it chooses from, in the order of its choices.
        clock: their clock.
        reports: where they report steps and ends.

    Raises:
        InputError: the caches of these servers report no events.
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
                    key=("router",),
                )
            if memory.promising_evicts:
                # Else an eviction would be reported only when a replica's wait is over, which
                # depends on how many steps pass as one.
                replica.pass_single_steps()
            router.block_tokens = memory.page_size
    if keys_of is not None:
        router.keys_of = keys_of
    reports.followers.append(router)
