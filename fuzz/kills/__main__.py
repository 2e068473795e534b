"""`python -m fuzz.kills`: kills commands at random moments, and reports what was not kept."""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM

from fuzz.attack import good_files
from fuzz.kills.commands import COMMANDS
from fuzz.kills.kills import SIGNALS, KillOutcome, Kills, drawn_kill
from sim.tables.table import Column, Table

KEPT = Path("build/fuzz-kills")


def table(outcomes: Sequence[KillOutcome]) -> Table:
    """A row for each command, and one for all."""
    in_order = sorted(outcomes, key=lambda outcome: outcome.kill.command.name)
    groups = groupby(in_order, lambda outcome: outcome.kill.command.name)
    rows = [_row(name, list(group)) for name, group in groups]
    headers = ("kills", "KILL", "TERM", "INT", "before its start", "done", "moments %", "faults")
    columns = [Column("command", is_text=True), *map(Column, headers)]
    return Table(columns, [*rows, _row("all", in_order)])


def _row(name: str, outcomes: Sequence[KillOutcome]) -> tuple[object, ...]:
    signals = Counter(outcome.kill.number for outcome in outcomes)
    ended = Counter(outcome.ended for outcome in outcomes)
    shares = [outcome.kill.share for outcome in outcomes]
    return (
        name,
        len(outcomes),
        *(signals[number] for number in (SIGKILL, SIGTERM, SIGINT)),
        ended["before its start"],
        ended["done"],
        f"{100 * min(shares):.0f}-{100 * max(shares):.0f}",
        sum(bool(outcome.why) for outcome in outcomes),
    )


def main() -> int:
    """Run the command line; returns 1 if a promise was not kept."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.kills", description=__doc__)
    parser.add_argument("--number", type=int, default=200, help="how many kills; default: 200")
    parser.add_argument("--seed", type=int, default=1, help="others give other kills; default: 1")
    parser.add_argument("--only", type=int, help="the kill of this number alone")
    parser.add_argument("--command", default="", help="only commands whose name has this text")
    parser.add_argument("--signal", choices=("KILL", "TERM", "INT"), help="only this one")
    given = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    commands = tuple(each for each in COMMANDS if given.command in each.name)
    signals = [each for each in SIGNALS if given.signal in {None, each.name.removeprefix("SIG")}]
    numbers = range(given.number) if given.only is None else [given.only]
    outcomes = []
    with good_files(folders=False) as good, Kills(good, KEPT) as kills:
        for number in numbers:
            kill, name = drawn_kill(given.seed, number, commands, signals), f"{given.seed}-{number}"
            outcomes.append(kills.one(kill, name))
            if why := outcomes[-1].why:
                moment = f"{kill.number.name} at {100 * kill.share:.0f} %"
                sys.stdout.write(f"{name} ({kill.command.name}, {moment}): {'; '.join(why)}\n")
                sys.stdout.flush()
            if not (number + 1) % 20:
                sys.stderr.write(f"{number + 1:,} kills\n")
    sys.stdout.write(table(outcomes).text())
    num_failed = sum(bool(outcome.why) for outcome in outcomes)
    if num_failed:
        sys.stdout.write(f"kept in {KEPT}\n")
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
