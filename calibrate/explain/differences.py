"""What differs between two runs: each difference, and how a setup takes it over."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from calibrate.explain.run import Run, RunPool
from calibrate.explain.setup import PoolSetup, Setup
from calibrate.explain.words import (
    changed_words,
    decode_words,
    fleet_words,
    gap_words,
    pool_words,
    prefill_words,
    router_words,
    stalls_of_servers,
    traffic_words,
)
from sim.core.errors import InputError
from sim.des.routers.router import Router
from sim.engine.server_config import BOTH

# Keys of a scheduler's section that say nothing but how large its KV pool is.
_POOL_KEYS = frozenset({
    "num_gpu_blocks_override", "gpu_memory_utilization", "max_total_tokens", "mem_fraction_static",
})  # fmt: skip
# Keys of a scenario beside the scheduler's that step times, and perhaps settings, follow from.
_SERVED_KEYS = ("model", "hardware", "acceptance")

RouterMaker = Callable[[], Router]
Change = Callable[[Setup], Setup]
# Its name, how it was and is, and the change that takes it over.
Difference = tuple[str, str, Change]
_PoolChange = Callable[[PoolSetup], PoolSetup]
_PoolDifference = tuple[str, str, _PoolChange]


def differences(before: Run, after: Run) -> Iterator[Difference]:
    """Each difference between two runs, in the order in which they are taken over."""
    one, other = (next(iter(run.pools.values())) for run in (before, after))
    if not _same_keys(one, other, ("workload", "seed")):
        workload = after.setup.workload
        words = traffic_words(before.setup.workload, workload)
        # Where both have recorded which server had a request, that belongs to the requests.
        routers = after.setup.routers if before.served_by and _other_requests(before, after) else {}
        yield (
            "traffic",
            words,
            lambda setup: replace(setup, workload=workload, routers={**setup.routers, **routers}),
        )
    if _roles(before) != _roles(after):
        yield _deployment(before, after)
        return
    pools = [(name, pool, after.pools[name]) for name, pool in before.pools.items()]
    for rules in (_settings, _servers):
        for name, old, new in pools:
            yield from _in_pool(name, rules(old, new))
    yield from _between_servers(before, after)
    for rules in (_front_end, _step_times):
        for name, old, new in pools:
            yield from _in_pool(name, rules(old, new))


def _other_requests(before: Run, after: Run) -> bool:
    """Whether both are fleets of real servers that served other requests."""
    return bool(after.served_by) and before.served_by.keys() != after.served_by.keys()


def _same_keys(before: RunPool, after: RunPool, keys: Sequence[str]) -> bool:
    """Whether both are scenarios, and these keys say the same in both: then nothing differs."""
    if before.steps or after.steps or before.base_dir != after.base_dir:
        return False
    return all(_same(before, after, key) for key in keys)


def _roles(run: Run) -> dict[str, str]:
    return {name: pool.setup.role for name, pool in run.pools.items()}


def _deployment(before: Run, after: Run) -> Difference:
    """All servers at once, where the pools of one run are not those of the other."""
    new = after.setup
    return (
        "servers, with their settings and step times",
        f"{pool_words(before)} -> {pool_words(after)}",
        lambda setup: replace(new, workload=setup.workload),
    )


def _in_pool(name: str, found: Iterator[_PoolDifference]) -> Iterator[Difference]:
    """The differences between the servers of a pool, as differences between the setups."""
    for what, words, change in found:

        def of_setup(setup: Setup, change: _PoolChange = change) -> Setup:
            return replace(setup, pools={**setup.pools, name: change(setup.pools[name])})

        yield f"{name}: {what}" if name else what, words, of_setup


def _settings(before: RunPool, after: RunPool) -> Iterator[_PoolDifference]:
    """The settings of the scheduler that differ, one after another, and the size of its pool."""
    old, new = before.scenario.scheduler, after.scenario.scheduler
    config = after.setup.servers.config
    if type(old) is not type(new):
        yield "scheduler", f"{old.family} -> {new.family}, and all settings", _config_change(config)
        return
    names = [name for name in type(old).model_fields if getattr(old, name) != getattr(new, name)]
    taken: dict[str, Any] = {name: getattr(new, name) for name in names if name in _POOL_KEYS}
    pool_tokens = after.pool_tokens
    waiting: list[tuple[str, str]] = []
    if before.pool_tokens != pool_tokens:
        waiting.append(("KV pool", f"{before.pool_tokens:,} -> {pool_tokens:,} tokens"))
    for name in (None, *(name for name in names if name not in _POOL_KEYS)):
        if name is not None:
            waiting.append((name, f"{getattr(old, name)} -> {getattr(new, name)}"))
            taken[name] = getattr(new, name)
        try:
            config = before.config_with(taken, pool_tokens)
        except InputError:
            continue  # It goes only together with a setting that follows.
        if waiting:
            yield (*_joined(waiting), _config_change(config))
            waiting.clear()
    config = after.setup.servers.config
    if waiting:
        yield (*_joined(waiting), _config_change(config))
    elif keys := [key for key in _SERVED_KEYS if not _same(before, after, key)]:
        # What of the settings follows from these: layers with windows, how drafts are accepted.
        changes = ", ".join(changed_words(before.scenario, after.scenario, keys))
        yield f"settings that follow from {', '.join(keys)}", changes, _config_change(config)


def _same(before: RunPool, after: RunPool, key: str) -> bool:
    return bool(getattr(before.scenario, key) == getattr(after.scenario, key))


def _joined(settings: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Settings that go together as one cause: their names and their values."""
    return ", ".join(name for name, _ in settings), ", ".join(words for _, words in settings)


def _config_change(config: Any) -> _PoolChange:
    return lambda pool: replace(pool, servers=pool.servers._replace(config=config))


def _servers(before: RunPool, after: RunPool) -> Iterator[_PoolDifference]:
    """How many servers, ranks and stages there are, and the settings that follow from these."""
    old, new = before.setup, after.setup

    def change(pool: PoolSetup) -> PoolSetup:
        return replace(
            pool,
            servers=pool.servers._replace(config=new.servers.config),
            num_servers=new.num_servers,
            num_ranks=new.num_ranks,
            autoscale=new.autoscale,
            gpus=new.gpus,
            in_stages=new.in_stages,
        )

    sizes = [
        (setup.num_servers, setup.num_ranks, stages, setup.autoscale)
        for setup, stages in ((old, before.num_stages), (new, after.num_stages))
    ]
    if sizes[0] != sizes[1]:
        yield "servers", f"{fleet_words(before)} -> {fleet_words(after)}", change


def _between_servers(before: Run, after: Run) -> Iterator[Difference]:
    """Which server a request goes to, and how its KV gets from one to another."""
    named = {pool.setup.role: name for name, pool in before.pools.items()}
    for role, name in named.items():
        if _routes_otherwise(before, after, name):
            make = after.setup.routers[role]

            def choose(setup: Setup, role: str = role, make: RouterMaker = make) -> Setup:
                return replace(setup, routers={**setup.routers, role: make})

            what = "router" if role == BOTH else f"{role} router"
            words = " -> ".join(router_words(run, name) for run in (before, after))
            yield what, words, choose
    received = {name: pool.received for name, pool in after.setup.pools.items()}
    if before.scenario.transfer != after.scenario.transfer or any(
        pool.received != received[name] for name, pool in before.setup.pools.items()
    ):
        changes = changed_words(before.scenario.transfer, after.scenario.transfer)
        yield (
            "transfer",
            ", ".join(changes) or "bytes of a token",
            lambda setup: replace(
                setup,
                handover=after.setup.handover,
                pools={
                    name: replace(pool, received=received[name])
                    for name, pool in setup.pools.items()
                },
            ),
        )


def _routes_otherwise(before: Run, after: Run, pool: str) -> bool:
    if before.served_by or after.served_by:
        return before.served_by != after.served_by and not _other_requests(before, after)
    return before.pools[pool].scenario.router != after.pools[pool].scenario.router


def _front_end(before: RunPool, after: RunPool) -> Iterator[_PoolDifference]:
    host, number = after.setup.servers.host, after.setup.servers.num_front_ends
    if before.setup.servers.host != host:
        yield (
            "front end",
            "what happens to a request before and after the engine",
            lambda pool: replace(
                pool, servers=pool.servers._replace(host=host, num_front_ends=number)
            ),
        )


def _step_times(before: RunPool, after: RunPool) -> Iterator[_PoolDifference]:
    """The three times of a step, and the stalls."""
    if _same_keys(before, after, (*_SERVED_KEYS, "latency", "host", "scheduler")):
        return
    new = after.setup
    yield (
        "prefill steps",
        prefill_words(before, after),
        lambda pool: replace(pool, prefill=new.prefill),
    )
    yield (
        "decode steps",
        decode_words(before, after),
        lambda pool: replace(pool, decode=new.decode, in_stages=new.in_stages),
    )
    yield "between steps", gap_words(before, after), lambda pool: replace(pool, gaps=new.gaps)
    if any(before.setup.stalls) or any(new.stalls):
        words = " -> ".join(stalls_of_servers(pool.setup.stalls) for pool in (before, after))
        yield "stalls", words, lambda pool: replace(pool, stalls=new.stalls)
