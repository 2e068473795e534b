"""`python -m fuzz`: makes hostile inputs, runs commands on them, and reports those that failed."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

from fuzz.cases import Case, all_cases, drawn, inputs_of
from fuzz.files import write_all
from fuzz.judge import faults
from fuzz.worker import Worker, commands_of

KEPT = Path("build/fuzz")


class Outcome(NamedTuple):
    """What one input did; `why` is empty if all was well."""

    number: int
    case: str
    command: str
    why: tuple[str, ...]


def attack(
    number: int, seed: int, good: Path, worker: Worker, kept: Path | None, cases: Sequence[Case]
) -> Outcome:
    """Make the input of this number, run a command on it, and keep it if something is wrong.

    The same number and seed give the same input.
    """
    rng = Random(f"{seed}-{number}")
    case = drawn(cases, rng)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        folder = Path(place) / "input"
        shutil.copytree(good, folder)
        inputs = inputs_of(case, folder, rng)
        command = rng.choice(case.commands)
        # A sweep writes its own points anew.
        guarded = {} if "--out sweep" in command else inputs
        ended = worker.run(commands_of(command, no_user_code=case.own), folder)
        why = tuple(faults(ended, folder, guarded))
        if why and kept is not None:
            target = kept / f"{seed}-{number}"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(folder, target)
            for name, content in inputs.items():
                (target / name).write_bytes(content)
            text = f"{case.name}: {command}\n" + "".join(f"{reason}\n" for reason in why)
            (target / "WHY").write_text(
                text + ended.err[-4_000:], encoding="utf-8", errors="replace"
            )
    return Outcome(number, case.name, command, why)


def outcomes(
    numbers: Sequence[int], seed: int, jobs: int, budget_s: float, cases: Sequence[Case]
) -> Iterator[Outcome]:
    """Attack with inputs of these numbers until the time is over; failing inputs are kept."""
    end_s = time.monotonic() + budget_s
    place = count()
    with good_files() as good, ThreadPoolExecutor(jobs) as threads:

        def work(_job: int) -> list[Outcome]:
            done = []
            with Worker() as worker:
                while (at := next(place)) < len(numbers) and time.monotonic() < end_s:
                    done.append(attack(numbers[at], seed, good, worker, KEPT, cases))
                    _show(done[-1], at + 1)
            return done

        for part in threads.map(work, range(jobs)):
            yield from part


@contextmanager
def good_files() -> Iterator[Path]:
    """A folder with all files of `fuzz.files`."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="fuzz-good-") as place:
        try:
            os.chdir(place)
            with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing):
                write_all(Path(place))
        finally:
            os.chdir(before)
        yield Path(place)


def _show(outcome: Outcome, number: int) -> None:
    if outcome.why:
        name = f"input {outcome.number} ({outcome.case}: {outcome.command})"
        sys.stdout.write(f"{name}: {'; '.join(outcome.why)}\n")
    if not number % 200:
        sys.stderr.write(f"{number:,} inputs\n")


def main() -> int:
    """Run the command line; returns 1 if an input failed."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=2_000, help="how many; default: 2000")
    parser.add_argument("--seed", type=int, default=1, help="other inputs; default: 1")
    parser.add_argument(
        "--budget-s", type=float, default=900, help="end after this time; default: 900"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--only", type=int, help="run the input of this number alone")
    parser.add_argument("--case", default="", help="only cases whose name has this text")
    given = parser.parse_args()
    cases = [case for case in all_cases() if given.case in case.name]
    KEPT.mkdir(parents=True, exist_ok=True)
    numbers = range(given.inputs) if given.only is None else [given.only]
    found = list(outcomes(numbers, given.seed, given.jobs, given.budget_s, cases))
    failed = [outcome for outcome in found if outcome.why]
    sys.stdout.write(f"{len(found):,} inputs, {len(failed)} failed\n")
    for why, number in Counter(reason for each in failed for reason in each.why).most_common():
        sys.stdout.write(f"{number:6} {why}\n")
    if failed:
        sys.stdout.write(f"kept in {KEPT}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
