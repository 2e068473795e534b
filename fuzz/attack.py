"""Makes one hostile input, runs a command on it, and says what went wrong."""

import base64
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

from fuzz.cases import FuzzCase
from fuzz.files import write_files, write_folders
from fuzz.judge import Ended, faults, remarks


class Runner(Protocol):
    """Runs commands in a folder, up to the first that fails."""

    def run(self, commands: Sequence[Sequence[str]], folder: Path) -> Ended: ...


class FuzzInput(NamedTuple):
    """One input: a case's command, and the content of the file that is changed."""

    case: FuzzCase
    command: str
    target: str
    content: bytes


class AttackOutcome(NamedTuple):
    """What one input did; `why` is empty if all was well.

    Attributes:
        name: the seed and the number of the input.
        group, case, command: see `FuzzCase`.
        ended: how the command ended.
    """

    name: str
    group: str
    case: str
    command: str
    ended: Ended
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

    def drawn(self, number: int) -> FuzzInput:
        """The input of this number."""
        rng = Random(f"{self.seed}-{number}")
        [case] = rng.choices(self.cases, [case.weight for case in self.cases])
        target = case.target
        if "{point}" in target:
            points = sorted(path.name for path in (self.good / "sweep/points").iterdir())
            target = target.replace("{point}", rng.choice(points))
        path = self.good / target
        content = case.changed(path.read_bytes() if path.exists() else b"", rng)
        return FuzzInput(case, rng.choice(case.commands), target, content)

    def one(self, number: int, runner: Runner, other: Runner | None = None) -> AttackOutcome:
        """Run the command of the input of this number.

        `other` runs it once more in a process with other hashes of texts, where that is wanted.
        """
        return self.run(self.drawn(number), f"{self.seed}-{number}", runner, other)

    def run(
        self, given: FuzzInput, name: str, runner: Runner, other: Runner | None = None
    ) -> AttackOutcome:
        """Run the command of an input."""
        case, command = given.case, given.command
        commands = commands_of(command, no_user_code=case.own)
        with self._folder(given) as folder:
            ended = runner.run(commands, folder)
            # A sweep writes its own points anew.
            inputs = {} if "--out sweep" in command else {given.target: given.content}
            why = faults(ended, commands, folder, inputs)
            if other is not None and case.twice:
                again = other.run([[*words, "once"] for words in commands], folder)
                first, other_words = remarks(ended.err), remarks(again.err)
                if (again.code, again.out, other_words) != (ended.code, ended.out, first):
                    why.append(f"with other hashes of texts: {again.code} {again.err[-200:]}")
            outcome = AttackOutcome(name, case.group, case.name, command, ended, why)
            if why and self.kept is not None:
                _keep(outcome, self.kept, folder, given)
        return outcome

    @contextmanager
    def _folder(self, given: FuzzInput) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
            folder = Path(place) / "input"
            # Links are quicker; a command replaces files, and does not write into them.
            shutil.copytree(self.good, folder, copy_function=os.link)
            (folder / given.target).unlink(missing_ok=True)
            (folder / given.target).write_bytes(given.content)
            yield folder


def commands_of(text: str, *, no_user_code: bool) -> list[list[str]]:
    """The commands of a case's text, which `&&` may join."""
    commands = [shlex.split(part) for part in text.split("&&")]
    if no_user_code:
        commands = [[*c, "--no-user-code"] for c in commands]
    return commands


def _keep(outcome: AttackOutcome, kept: Path, folder: Path, given: FuzzInput) -> None:
    target = kept / outcome.name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    (target / given.target).write_bytes(given.content)
    lines = [f"{outcome.case}: {outcome.command}", *outcome.why, outcome.ended.err[-4_000:]]
    (target / "WHY").write_text("\n".join(lines), encoding="utf-8", errors="backslashreplace")
    write_corpus(kept / f"{outcome.name}.json", given, outcome.why[0])


def write_corpus(path: Path, given: FuzzInput, why: str) -> None:
    """Write an input as a file that `read_corpus` reads; `why` says what it did."""
    try:
        content = {"text": given.content.decode()}
    except UnicodeDecodeError:
        content = {"base64": base64.b64encode(given.content).decode()}
    said = {"case": given.case.name, "command": given.command, "target": given.target}
    text = json.dumps({"why": why[:300], **said, **content}, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def read_corpus(path: Path, cases: Sequence[FuzzCase]) -> FuzzInput:
    """An input that was kept."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    [case] = [case for case in cases if case.name == kept["case"]]
    content = kept["text"].encode() if "text" in kept else base64.b64decode(kept["base64"])
    return FuzzInput(case, kept["command"], kept["target"], content)


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
