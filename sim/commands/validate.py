"""`simulate validate`: is this scenario, with everything it names, in order?"""

from collections.abc import Sequence
from pathlib import Path

from sim.commands.output import print_line
from sim.scenario.build import build
from sim.scenario.load import load_scenario


def validate(path: Path, overrides: Sequence[str]) -> None:
    """Load and build the scenario. Raises InputError with the first thing that is wrong."""
    built = build(load_scenario(path, overrides))
    requests = _counted(built.workload.num_requests, "request")
    print_line(f"{path}: in order; {requests}, {_counted(len(built.latencies), 'replica')}")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
