"""The command that launches a real server with the settings of a scenario."""

from dataclasses import replace

from sim.families import FAMILIES
from sim.launch_command import LaunchCommand
from sim.scenario.schema import Scenario
from sim.sweep.plan import Settings, canonical


def launch_of(scenario: Scenario, searched: Settings) -> LaunchCommand:
    """The launch command of a scenario.

    Args:
        scenario: a scenario with the settings.
        searched: the settings that a search varied. Those of the scheduler become flags even if
            they are the server's defaults; the others have no flag, and are named.
    """
    scheduler = scenario.scheduler
    parts = {key: key.partition(".") for key in searched}
    keys = [rest for top, _, rest in parts.values() if top == "scheduler"]
    launch = FAMILIES[scheduler.family].launch_command(scheduler, keys)
    elsewhere = [
        f"{key}={canonical(searched[key])}"
        for key, (top, _, _) in parts.items()
        if top != "scheduler"
    ]
    return replace(launch, apart=(*launch.apart, *elsewhere))
