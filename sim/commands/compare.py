"""`simulate compare`: compares a decision log with another one, or replays it on a scenario."""

from pathlib import Path
from typing import Annotated

import typer

from sim.command_line.command import Set, command
from sim.core.errors import InputError

_SCENARIO_SUFFIXES = (".yaml", ".yml")


@command(user_code=True)
def compare(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="decision log")],
    other: Annotated[
        Path, typer.Argument(metavar="OTHER", help="decision log, or scenario (YAML) to replay on")
    ],
    set_: Set = None,
) -> None:
    """Find the first step at which two logs, or a log and a scenario, differ."""
    from sim.commands.output import print_line
    from sim.commands.running.replay_log import differing_fields, replay_log
    from sim.runlog.run_log_file import first_difference, read_decisions

    steps, requests = read_decisions(log)
    if other.suffix in _SCENARIO_SUFFIXES:
        divergence = replay_log(log, steps, requests, other, set_ or ())
        how = "decided the same again"
    elif set_:
        raise InputError(f"--set {set_[0]}: {other} is a log, not a scenario")
    else:
        divergence = first_difference(steps, read_decisions(other)[0], differing_fields)
        how = "the same"
    print_line(str(divergence) if divergence else f"all {len(steps):,} steps are {how}")
