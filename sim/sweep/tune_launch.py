"""Makes the launch command of a search's winner."""

from collections.abc import Sequence
from dataclasses import replace

from sim.families import FAMILIES
from sim.launch_command import LaunchCommand
from sim.sweep.plan import canonical
from sim.sweep.tune import Trial
from sim.sweep.tune_plan import TunePlan
from sim.sweep.tune_results import TuneResults

# The section whose keys a server may have flags for.
_SCHEDULER = "scheduler"


def launch_of(
    plan: TunePlan, trials: Sequence[Trial], results: TuneResults
) -> LaunchCommand | None:
    """The winner's launch command; settings outside of the scheduler's section have no flag."""
    if results.winner is None:
        return None
    settings = trials[results.winner.trial].settings
    scheduler = plan.plan.vary(settings).scenario.scheduler
    parts = {key: key.partition(".") for key in plan.space.axes}
    searched = [rest for top, _, rest in parts.values() if top == _SCHEDULER]
    launch = FAMILIES[scheduler.family].launch_command(scheduler, searched)
    elsewhere = [
        f"{key}={canonical(results.winner.settings[key])}"
        for key, (top, _, _) in parts.items()
        if top != _SCHEDULER
    ]
    return replace(launch, apart=(*launch.apart, *elsewhere))
