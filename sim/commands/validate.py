"""`simulate validate`: is this scenario, with everything it names, in order?"""

from collections.abc import Sequence
from pathlib import Path

from sim.commands.output import print_line
from sim.scenario.build import build
from sim.scenario.load import load_scenario
from sim.sweep.plan import plan_sweep
from sim.sweep.tune_plan import plan_tune


def validate(path: Path, overrides: Sequence[str]) -> None:
    """Load and build the scenario, and check every point of its sweep, and its search.

    Raises:
        InputError: the first thing that is wrong.
    """
    loaded = load_scenario(path, overrides)
    built = build(loaded)
    requests = _counted(built.workload.num_requests, "request")
    text = f"{path}: in order; {requests}, {_counted(len(built.latencies), 'replica')}"
    if loaded.scenario.sweep is not None:
        text += f", a sweep of {_counted(len(plan_sweep(loaded).points), 'point')}"
    if loaded.scenario.tune is not None:
        text += f", a search of {_counted(plan_tune(loaded).num_trials, 'trial')}"
    print_line(text)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
