"""Says which part of a scenario a real run does not use, although a simulation does."""

from sim.core.say import say
from sim.scenario.load import LoadedScenario


def say_unused(*variants: LoadedScenario) -> None:
    """Print a line on stderr if a scenario, or any variant of it, has a section `host`."""
    found = next((loaded for loaded in variants if loaded.scenario.host is not None), None)
    if found is not None:
        reason = "is not used by a real run, which takes the time of this machine's own host"
        say(f"realrun: {found.locations.message(('host',), reason)}")
