"""A few of the inputs of `make fuzz` (docs/how-to/fuzz.md), in this process."""

import os
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from fuzz.attack import Attack, good_files
from fuzz.all_cases import all_cases
from fuzz.judge import Ended
from fuzz.programs import PROGRAMS

# Drawing takes a second, and a sweep starts processes.
SLOW = ("run ", "points", "results", "sweep", "search", "measured", "timeseries")


class Here:
    """Runs commands in this process."""

    def run(self, commands, folder):
        before = Path.cwd()
        out, err = StringIO(), StringIO()
        code = 0
        try:
            os.chdir(folder)
            with redirect_stdout(out), redirect_stderr(err):
                for program, *arguments in commands:
                    out.truncate(0)
                    out.seek(0)
                    code = PROGRAMS[program](arguments)
                    if code:
                        break
        finally:
            os.chdir(before)
        return Ended(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def attack():
    cases = [case for case in all_cases() if not case.name.startswith(SLOW)]
    with good_files(folders=False) as good:
        yield Attack(good, cases, seed=0)


@pytest.mark.parametrize("number", range(60))
def test_hostile_input_ends_in_one_line_or_not_at_all(attack, number):
    """Whatever it is, no traceback, no long or unprintable line, no code of its own."""
    outcome = attack.one(number, Here())
    assert not outcome.why, f"{outcome.case}: {outcome.command}"
