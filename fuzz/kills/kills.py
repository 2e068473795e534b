"""Kills a command in a folder of its own, runs it again, and says what went wrong."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from signal import SIGINT, SIGKILL, SIGTERM, Signals
from threading import Event
from typing import NamedTuple, Self

from fuzz.kills.commands import COMMANDS, READ, SCENARIOS, SERVER, KilledCommand
from fuzz.kills.judge import (
    Reference,
    faults_of_kill,
    faults_of_next,
    files_in,
    is_before_start,
    left_by,
    points_in,
)
from fuzz.kills.process import Killed, Moment, address_of, run_command, started

SIGNALS = (SIGKILL, SIGTERM, SIGINT)
# A little after the usual end, too: a run may take longer than usual.
_LATEST_SHARE = 1.1


class Kill(NamedTuple):
    """What is killed, when (as a share of its usual duration), and by which signal."""

    command: KilledCommand
    share: float
    number: Signals


class KillOutcome(NamedTuple):
    """What a kill did; `why` is empty if all was well.

    Attributes:
        ended: how the command ended: `before its start`, `killed` or `done`.
    """

    kill: Kill
    ended: str
    why: list[str]


def drawn_kill(
    seed: int,
    number: int,
    commands: tuple[KilledCommand, ...] = COMMANDS,
    signals: Sequence[Signals] = SIGNALS,
) -> Kill:
    """The kill of this number: always the same one with the same seed."""
    rng = Random(f"{seed}-{number}")
    [command] = rng.choices(commands, [each.weight for each in commands])
    return Kill(command, rng.uniform(0, _LATEST_SHARE), rng.choice(signals))


class Kills:
    """Runs kills; each command is run whole before its first one."""

    def __init__(self, good: Path, kept: Path | None = None, num_whole: int = 2) -> None:
        """`good` has files of `good_files`; failing kills stay in `kept`.

        A command is run whole this many times, and the last one says how long it takes: the first
        run of all compiles and reads what others find in memory.
        """
        self._good, self._kept, self._num_whole = good, kept, num_whole
        self._references: dict[str, Reference] = {}
        self._opened = ExitStack()
        self._server = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._opened.close()

    def one(self, kill: Kill, name: str) -> KillOutcome:
        """Kill a command; `name` is that of the folder in which a failing one is kept."""
        command, reference = kill.command, self._reference(kill.command)
        with self._folder(command) as folder:
            moment = Moment(kill.share * reference.seconds, kill.number)
            killed = self._run(command, folder, moment)
            why = [*faults_of_kill(command, reference, folder, killed, kill.number)]
            points = points_in(command, folder)
            if not command.needs or (folder / command.needs).exists():
                repeated = command._replace(
                    arguments=command.again or command.arguments, num_asked=0
                )
                again = self._run(repeated, folder)
                why += faults_of_next(command, reference, folder, again, points)
            if why and self._kept is not None:
                _keep(self._kept / name, folder.parent, kill, killed, why)
        ended = "killed"
        if killed.code in command.done:
            ended = "done"
        elif is_before_start(killed, kill.number):
            ended = "before its start"
        return KillOutcome(kill, ended, why)

    def _reference(self, command: KilledCommand) -> Reference:
        if command.name not in self._references:
            for _ in range(self._num_whole):
                with self._folder(command) as folder:
                    inputs = files_in(folder)
                    ended = self._run(command, folder)
                    if ended.code != 0 or ended.num_answered != command.num_asked:
                        raise RuntimeError(f"{command.name}: {ended.code}: {ended.err[-2000:]}")
                    same = None if command.same is None else command.same(folder)
                    reference = Reference(
                        files_in(folder), inputs, same, ended.seconds, left_by(folder)
                    )
            self._references[command.name] = reference
        return self._references[command.name]

    @contextmanager
    def _folder(self, command: KilledCommand) -> Iterator[Path]:
        """A folder with what the commands read."""
        with tempfile.TemporaryDirectory(prefix="kills-") as place:
            folder = Path(place) / "folder"
            folder.mkdir()
            for name, scenario in SCENARIOS.items():
                (folder / name).write_text(json.dumps(scenario, indent=1), encoding="utf-8")
            for name in READ:
                shutil.copy(self._good / name, folder)
            yield folder

    def _run(self, command: KilledCommand, folder: Path, moment: Moment | None = None) -> Killed:
        arguments = [
            self._url() if argument == SERVER else argument
            for argument in command.arguments.split()
        ]
        return run_command(arguments, folder, moment, command.num_asked)

    def _url(self) -> str:
        """A server for the commands that need one; it runs until the end."""
        if not self._server:
            folder = self._opened.enter_context(self._folder(COMMANDS[0]))
            serve = ["sim", "serve", "base.yaml", "--port", "0", "--speed", "20"]
            self._opened.enter_context(started(serve, folder))
            self._server = f"http://{address_of(folder, Event())}"
        return self._server


def _keep(target: Path, place: Path, kill: Kill, killed: Killed, why: list[str]) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(place, target)
    lines = [
        f"{kill.command.name}: {kill.number.name} after {killed.seconds:.2f} s",
        f"exit code {killed.code}",
        *why,
        killed.err[-4_000:],
    ]
    (target / "WHY").write_text("\n".join(lines), encoding="utf-8", errors="backslashreplace")
