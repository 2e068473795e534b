"""`simulate validate`: is this scenario, with everything it names, in order?"""

from collections.abc import Sequence
from pathlib import Path

from sim.commands.output import print_line
from sim.scenario.build import build
from sim.scenario.load import load_scenario


def validate(path: Path, overrides: Sequence[str]) -> None:
    """Load and build the scenario. Raises InputError with the first thing that is wrong."""
    built = build(load_scenario(path, overrides))
    num_requests = built.workload.num_requests
    print_line(f"{path}: in order; {num_requests:,} requests, {len(built.latencies)} replicas")
