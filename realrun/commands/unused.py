"""Says which part of a scenario a real run does not use, although a simulation does."""

from sim.core.messages import say
from sim.scenario.load import LoadedScenario

_UNUSED = {
    "host": "which takes the time of this machine's own host",
    "warmup": "whose summary is about all of it",
    "cooldown": "whose summary is about all of it",
}


def say_unused(*variants: LoadedScenario) -> None:
    """Print a line on stderr for each such section of a scenario, or of any variant of it."""
    for key, why in _UNUSED.items():
        found = next((loaded for loaded in variants if getattr(loaded.scenario, key)), None)
        if found is not None:
            reason = f"is not used by a real run, {why}"
            say(f"realrun: {found.locations.message((key,), reason)}")
