"""Command lines of servetwin, and of the peers that need no file of their own."""

import sys
from pathlib import Path

from bench.dynamo_commands import PYTHON_1_4, PYTHON_1_6
from bench.places import PEERS, SCENARIOS
from sim.core.errors import InputError

# The command that the installation has left beside Python.
SIMULATE = Path(sys.executable).with_name("simulate")
_SCHED_SIM = PEERS / "sched-sim" / "bin" / "sched-sim"


def ours(scenario: str | Path, *overrides: str, options: tuple[str, ...] = ()) -> list[str]:
    """`simulate run` with a scenario of `bench/scenarios`, or one given by its path."""
    sets = [word for override in overrides for word in ("--set", override)]
    return [str(SIMULATE), "run", str(SCENARIOS / scenario), *sets, *options]


def sched_sim(trace: Path) -> list[str]:
    """sched-sim's replay in chunks of 512 tokens."""
    return [str(_SCHED_SIM), "trace", str(trace), "--token-budget", "512", "--no-gantt"]


def require_peers() -> None:
    """Check that the peers are installed.

    Raises:
        InputError: one of them is not.
    """
    for command in (PYTHON_1_4, PYTHON_1_6, _SCHED_SIM):
        if not command.exists():
            raise InputError(f"{command}: no such file; make bench-peers installs it")
