"""`python -m fuzz`: attacks the commands with many inputs, and reports those that failed."""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, count, groupby
from pathlib import Path

from fuzz.all_cases import all_cases
from fuzz.attack import Attack, AttackOutcome, good_files
from fuzz.cases import FuzzCase
from fuzz.worker import Worker
from sim.tables.table import Column, Table

BAD_INPUT = 2
KEPT = Path("build/fuzz")


def outcomes(
    attack: Attack, numbers: Sequence[int], jobs: int, budget_s: float
) -> list[AttackOutcome]:
    """Attack with the inputs of these numbers until the time is over."""
    end_s = time.monotonic() + budget_s
    next_place = count()

    def work(_job: int) -> list[AttackOutcome]:
        done = []
        # The second one starts when a case first needs it.
        with Worker() as worker, Worker(hash_seed=1) as other:
            while (place := next(next_place)) < len(numbers) and time.monotonic() < end_s:
                done.append(attack.one(numbers[place], worker, other))
                _show(done[-1], place + 1)
        return done

    with ThreadPoolExecutor(jobs) as threads:
        return list(chain.from_iterable(threads.map(work, range(jobs))))


def _show(outcome: AttackOutcome, number: int) -> None:
    if outcome.why:
        what = f"{outcome.name} ({outcome.case}: {outcome.command})"
        sys.stdout.write(f"{what}: {'; '.join(outcome.why)}\n")
        sys.stdout.flush()
    if not number % 200:
        sys.stderr.write(f"{number:,} inputs\n")


def table(outcomes: Sequence[AttackOutcome]) -> Table:
    """A row for each group of cases, and one for all."""
    in_order = sorted(outcomes, key=lambda outcome: outcome.group)
    rows = [_row(name, list(group)) for name, group in groupby(in_order, lambda each: each.group)]
    headers = ("inputs", "refused %", "failed", "most memory MB")
    columns = [Column("attacked", is_text=True), *map(Column, headers)]
    return Table(columns, [*rows, _row("all", in_order)])


def _row(name: str, outcomes: Sequence[AttackOutcome]) -> tuple[object, ...]:
    num = max(len(outcomes), 1)
    refused = sum(outcome.ended.code == BAD_INPUT for outcome in outcomes)
    peak = max((outcome.ended.peak_bytes for outcome in outcomes), default=0)
    failed = sum(bool(outcome.why) for outcome in outcomes)
    return name, len(outcomes), f"{100 * refused / num:.0f}", failed, f"{peak / 1e6:.0f}"


def _is_one(case: FuzzCase, texts: str) -> bool:
    return any(text in f"{case.group}: {case.name}" for text in texts.split(","))


def main() -> int:
    """Run the command line; returns 1 if an input failed."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=2_000, help="how many; default: 2000")
    parser.add_argument("--seed", type=int, default=1, help="others give other inputs; default: 1")
    parser.add_argument("--budget-s", type=float, default=900, help="end after this time; 900")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--only", type=int, help="the input of this number alone")
    parser.add_argument(
        "--case", default="", help="only cases whose name or group has one of these texts: A,B"
    )
    given = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    cases = [case for case in all_cases() if _is_one(case, given.case)]
    numbers = range(given.inputs) if given.only is None else [given.only]
    began_s = time.monotonic()
    with good_files() as good:
        attack = Attack(good, cases, given.seed, KEPT)
        found = outcomes(attack, numbers, given.jobs, given.budget_s)
    failed = [outcome for outcome in found if outcome.why]
    sys.stdout.write(f"{time.monotonic() - began_s:,.0f} s, seed {given.seed}\n")
    sys.stdout.write(table(found).text())
    for why, number in Counter(reason for each in failed for reason in each.why).most_common():
        sys.stdout.write(f"{number:6} {why}\n")
    if failed:
        sys.stdout.write(f"kept in {KEPT}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
