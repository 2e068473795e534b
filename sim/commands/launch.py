"""The commands that launch real servers with the settings of a scenario."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from sim.engine.partner import BOTH
from sim.families import family_named
from sim.family import Family
from sim.latency.config import parallelism
from sim.launch_command import LaunchCommand
from sim.report.tune_tables import launch_lines
from sim.scenario.load import LoadedScenario
from sim.scenario.schema import Scenario
from sim.sweep.plan import Settings, canonical

_PARALLEL = ("latency.tp", "latency.dp", "latency.pp", "latency.moe_ep")
_POOLS, _REPLICAS = "pools", "replicas"


def launch_of(scenario: Scenario, searched: Settings, role: str = BOTH) -> LaunchCommand | None:
    """The launch command of each replica; None: the family is the user's own, and has none.

    Args:
        scenario: a scenario with the settings.
        searched: the settings that a search varied. Those of the scheduler become flags even if
            they are the server's defaults; others have no flag, and are named, but for the
            parallelism, which has.
        role: what the servers compute, see `sim.engine.partner`.
    """
    family = family_named(scenario.scheduler.family)
    if type(family).launch_command is Family.launch_command:
        return None
    parts = {key: key.partition(".") for key in searched}
    keys = [rest for top, _, rest in parts.values() if top == "scheduler"]
    launch = family.launch_command(scenario.scheduler, keys)
    spread = family.parallel_flags(parallelism(scenario.latency))
    elsewhere = [
        f"{key}={canonical(searched[key])}"
        for key, (top, _, _) in parts.items()
        if top != "scheduler" and key not in _PARALLEL
    ]
    return replace(
        launch,
        flags=(*launch.flags, *spread, *family.role_flags(role)),
        apart=(*launch.apart, *elsewhere),
    )


class Launches(NamedTuple):
    """The launch commands of a deployment.

    Attributes:
        commands: that of each pool's servers, by the pool's name; without pools by `""`. Servers of
            users' own families have none.
        headings: a line for each pool: `Pool prefill, 2 prefill servers, each:`.
    """

    commands: Mapping[str, LaunchCommand]
    headings: Mapping[str, str]

    def json(self) -> dict[str, Any] | None:
        """For results.json: the command; or with pools, the command of each pool."""
        content = {
            name: {**asdict(one), "command": one.command} for name, one in self.commands.items()
        }
        return content.get("", content) or None

    def lines(self) -> Iterator[str]:
        """Each command on a line of its own, ready to paste."""
        for name, command in self.commands.items():
            if name:
                yield self.headings[name]
            yield from launch_lines(command)


NO_LAUNCHES = Launches({}, {})


def launches_of(loaded: LoadedScenario, searched: Settings) -> Launches:
    """The launch commands of a scenario's servers; `searched` is as for `launch_of`."""
    if not loaded.pools:
        launch = launch_of(loaded.scenario, searched)
        return NO_LAUNCHES if launch is None else Launches({"": launch}, {})
    commands, headings = {}, {}
    for name, pool in loaded.pools.items():
        role, num = (loaded.scenario.pools or {})[name].role, pool.scenario.replicas
        launch = launch_of(pool.scenario, _of_pool(searched, name), role)
        if launch is not None:
            kind = "server" if role == BOTH else f"{role} server"
            count = f"1 {kind}:" if num == 1 else f"{num} {kind}s, each:"
            commands[name], headings[name] = launch, f"Pool {name}, {count}"
    return Launches(commands, headings)


def _of_pool(searched: Settings, name: str) -> Settings:
    """The settings of a pool's servers, by key path in the pool; their number is no setting."""
    prefix = f"{_POOLS}.{name}."
    shared = {key: value for key, value in searched.items() if key.split(".")[0] != _POOLS}
    own = {key[len(prefix) :]: value for key, value in searched.items() if key.startswith(prefix)}
    return {key: value for key, value in (shared | own).items() if key != _REPLICAS}
