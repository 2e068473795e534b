"""The command that launches a real server with the settings of a scenario."""

from dataclasses import replace

from sim.families import family_named
from sim.family import Family
from sim.latency.config import parallelism
from sim.launch_command import LaunchCommand
from sim.scenario.schema import Scenario
from sim.sweep.plan import Settings, canonical

_PARALLEL = ("latency.tp", "latency.dp", "latency.pp", "latency.moe_ep")


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
    return replace(launch, flags=flags, apart=(*launch.apart, *elsewhere))
