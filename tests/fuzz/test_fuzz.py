"""A few of the inputs of `make fuzz`, and all that failed once, in this process."""

import os
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from fuzz.all_cases import all_cases
from fuzz.attack import Attack, FuzzInput, good_files, read_corpus, write_corpus
from fuzz.judge import Ended
from fuzz.programs import PROGRAMS
from fuzz.scenarios import OTHERS, SCENARIOS

# Drawing takes a second, and a sweep starts processes.
SLOW = ("run ", "points", "results", "sweep", "search", "measured", "timeseries", "full disk slow")


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


CASES = [case for case in all_cases() if not case.name.startswith(SLOW)]
# A few of each group; there are more of the files than of all others.
NUMBERS = {
    "files": 50,
    "server logs": 20,
    "combined scenarios": 6,
    "results and traces by type": 20,
    "hostile servers": 8,
    "hostile clients of simulate serve": 2,
    "command lines": 12,
    "full disks": 6,
}
CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"))


@pytest.fixture(scope="module")
def good():
    with good_files(folders=False) as made:
        yield made


@pytest.mark.parametrize(
    ("group", "number"),
    [(group, number) for group, num in NUMBERS.items() for number in range(num)],
)
def test_hostile_input_ends_in_one_line_or_not_at_all(good, group, number):
    """Whatever it is, no traceback, no long or unprintable line, no code of its own."""
    attack = Attack(good, [case for case in CASES if case.group == group], seed=0)
    outcome = attack.one(number, Here())
    assert not outcome.why, f"{outcome.case}: {outcome.command}: {outcome.ended.err[-500:]}"


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_input_that_failed_once_fails_no_more(good, path):
    given = read_corpus(path, all_cases())
    outcome = Attack(good, CASES, seed=0).run(given, path.stem, Here())
    assert not outcome.why, outcome.ended.err[-500:]


def test_same_seed_and_number_give_the_same_input(good):
    """And each number gives one, however its changes meet."""
    first, again = (Attack(good, CASES, seed=3) for _ in range(2))
    assert all(first.drawn(number) == again.drawn(number) for number in range(50))


def test_every_group_is_drawn_from():
    """But the one that needs torch, which takes seconds to load."""
    assert {case.group for case in all_cases()} - NUMBERS.keys() == {
        "hostile clients of realrun serve"
    }


@pytest.mark.parametrize("name", [*SCENARIOS, *OTHERS])
def test_good_files_are_good(good, name):
    """What is refused as it is hides what a change to it would do."""
    ended = Here().run([["simulate", "validate", name]], good)
    assert (ended.code, ended.err) == (0, "")


def test_kept_input_is_read_as_it_was(tmp_path):
    for content in (b'{"a": "\xc3\xa9"}\n', b"\xff\x00"):
        given = FuzzInput(CASES[0], "simulate run {}", "a.yaml", content)
        write_corpus(tmp_path / "a.json", given, "why")
        assert read_corpus(tmp_path / "a.json", CASES) == given
