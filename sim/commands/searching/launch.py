"""The command that launches a real server with the settings of a scenario."""

from dataclasses import replace

from sim.families import family_named
from sim.family import Family
from sim.family.launch_command import LaunchCommand
from sim.latency.config import parallelism
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Scenario
from sim.sweep.plan import Settings, canonical
from sim.tables.text import counted

_PARALLEL = ("latency.tp", "latency.dp", "latency.pp", "latency.moe_ep")


def launches_of(loaded: LoadedScenario, searched: Settings) -> list[LaunchCommand]:
    """The commands that launch the servers of a scenario: of each pool, and of their router.

    Args:
        loaded: a scenario with the settings.
        searched: as for `launch_of`; those of a pool begin with `pools.NAME.`.
    """
    sections = loaded.scenario.pools or {}
    if not loaded.pools:
        launch = launch_of(loaded.scenario, searched)
        return [] if launch is None else [launch]
    launches: list[LaunchCommand] = []
    hosts: dict[str, list[str]] = {}
    routers: dict[str, str] = {}
    family = family_named(loaded.scenario.scheduler.family)
    for name, pool in loaded.pools.items():
        role, own, own_keys = sections[name].role, pool.scenario, f"pools.{name}."
        mine = {
            key.removeprefix(own_keys): value
            for key, value in searched.items()
            if not key.startswith("pools.") or key.startswith(own_keys)
        }
        mine.pop("replicas", None)
        launch = launch_of(own, mine)
        if launch is None:
            return []
        count = counted(own.replicas, "server")
        server, flags = f"{launch.server}, pool {name}, {count}", family.role_flags(role)
        launches.append(replace(launch, server=server, flags=(*launch.flags, *flags)))
        hosts.setdefault(role, []).extend(f"{name}-{number}" for number in range(own.replicas))
        routers[role] = own.router.kind
    router = family.router_command(hosts, routers)
    return launches if router is None else [*launches, router]


def launch_of(scenario: Scenario, searched: Settings) -> LaunchCommand | None:
    """The launch command of each replica; None: the family is the user's own, and has none.

    Args:
        scenario: a scenario with the settings.
        searched: the settings that a search varied. Those of the scheduler become flags even if
            they are the server's defaults; others have no flag, and are named, but for the
            parallelism, which has.
    """
    family = family_named(scenario.scheduler.family)
    if type(family).launch_command is Family.launch_command:
        return None
    parts = {key: key.partition(".") for key in searched}
    keys = [rest for top, _, rest in parts.values() if top == "scheduler"]
    launch = family.launch_command(scenario.scheduler, keys)
    flags = (*launch.flags, *family.parallel_flags(parallelism(scenario.latency)))
    elsewhere = [
        f"{key}={canonical(searched[key])}"
        for key, (top, _, _) in parts.items()
        if top != "scheduler" and key not in _PARALLEL
    ]
    return replace(launch, flags=flags, without_flag=(*launch.without_flag, *elsewhere))
