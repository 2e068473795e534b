"""Makes one hostile input, runs a command on it, and says what went wrong."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

from fuzz.cases import FuzzCase, commands_of, drawn, inputs_of
from fuzz.files import write_files, write_folders
from fuzz.judge import Ended, faults


class Runner(Protocol):
    """Runs commands in a folder, up to the first that fails."""

    def run(self, commands: Sequence[Sequence[str]], folder: Path) -> Ended: ...


class AttackOutcome(NamedTuple):
    """What one input did; `why` is empty if all was well."""

    name: str
    case: str
    command: str
    why: Sequence[str]


class Attack(NamedTuple):
    """A sequence of inputs: the same seed and number always give the same one.

    Attributes:
        good: a folder with good files of all kinds.
        cases: what is drawn from.
        seed: other seeds give other inputs.
        kept: the folder for failing inputs; None: they are not kept.
    """

    good: Path
    cases: Sequence[FuzzCase]
    seed: int
    kept: Path | None = None

    def one(self, number: int, runner: Runner) -> AttackOutcome:
        """Run the command of the input of this number."""
        rng = Random(f"{self.seed}-{number}")
        case = drawn(self.cases, rng)
        with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
            folder = Path(place) / "input"
            shutil.copytree(self.good, folder)
            inputs = inputs_of(case, folder, rng)
            command = rng.choice(case.commands)
            # A sweep writes its own points anew.
            kept_as_is = {} if "--out sweep" in command else inputs
            ended = runner.run(commands_of(command, no_user_code=case.own), folder)
            outcome = AttackOutcome(
                f"{self.seed}-{number}", case.name, command, faults(ended, folder, kept_as_is)
            )
            if outcome.why and self.kept is not None:
                _keep(outcome, self.kept, folder, inputs, ended)
        return outcome


def _keep(
    outcome: AttackOutcome, kept: Path, folder: Path, inputs: Mapping[str, bytes], ended: Ended
) -> None:
    target = kept / outcome.name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    for name, content in inputs.items():
        (target / name).write_bytes(content)
    lines = [f"{outcome.case}: {outcome.command}", *outcome.why, ended.err[-4_000:]]
    (target / "WHY").write_text("\n".join(lines), encoding="utf-8", errors="backslashreplace")


@contextmanager
def good_files(*, folders: bool = True) -> Iterator[Path]:
    """A folder with good files of every kind; also folders of runs and sweeps, if wanted."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="fuzz-good-") as place:
        try:
            os.chdir(place)
            nothing = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
            with nothing, redirect_stdout(nothing), redirect_stderr(nothing):
                write_files(Path(place))
                if folders:
                    write_folders(Path(place))
        finally:
            os.chdir(before)
        yield Path(place)
