"""A process in an engine's environment, in which the engine's scheduler decides.

`sim.installed.inside.main` is the other side, and has the protocol. The process holds the servers
of all replicas, as importing an engine takes seconds. It ends with the process that started it.
"""

import atexit
import json
import os
import signal
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sim.core.errors import InputError, shorten
from sim.installed.environment import InstalledEngine
from sim.user.modules import allow_code

# Makes package `sim` without its parent folder, which may hold packages of another environment.
_START = """
import sys, types
sys.path[:] = [entry for entry in sys.path if entry]
sim = sys.modules["sim"] = types.ModuleType("sim")
sim.__path__ = [sys.argv[1]]
from sim.installed.inside.main import main
main()
"""
_SIM = Path(__file__).parents[1]
# A process that answers no more has ended, or is about to.
_ENDS_WITHIN_S = 10


def child_environment() -> dict[str, str]:
    """The variables for a Python of another environment."""
    own = {"PYTHONPATH", "PYTHONHOME"}
    return {name: value for name, value in os.environ.items() if name not in own}


class EngineProcess:
    """A running process; use `running_process` to get one."""

    def __init__(self, engine: InstalledEngine) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        self.num_opened = 0
        self.has_ended = False
        # Numbers of servers that are not needed any more.
        self.dropped: list[int] = []
        self._engine = engine
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process runs
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own choice
                [str(engine.python), "-c", _START, str(_SIM), engine.package],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                # The order of a set is the same in each run; the engine needs no GPU.
                env=child_environment() | {"PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": ""},
                process_group=0,  # an interrupt is for this process alone
            )
        except OSError:
            self._errors.close()
            raise
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        self._asks, self._answers = self._process.stdin, self._process.stdout
        atexit.register(self.end)

    def ask(self, server: int, method: str, *arguments: object) -> dict[str, Any]:
        """What the process answers; `error` says that it raised something, or has ended."""
        question = json.dumps([server, method, arguments], separators=(",", ":"))
        line = b""
        with suppress(BrokenPipeError):
            self._asks.write(question.encode() + b"\n")
            self._asks.flush()
            line = self._answers.readline()
        if not line:
            self.has_ended = True
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDS_WITHIN_S)
            said = self._last_words()
            self.end()
            return {"error": said}
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            return {"error": f"it answers {shorten(line.decode(errors='replace').strip())}"}
        return answer

    def version(self) -> str:
        """The version of the engine.

        Raises:
            InputError: it cannot be imported.
        """
        answer = self.ask(0, "version")
        if "error" in answer:
            raise self._engine.error(f"{self._engine.folder}: {answer['error']}")
        return str(answer["version"])

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        said = next((f": {line.strip()}" for line in reversed(lines) if line.strip()), "")
        return f"its process ended with code {self._process.returncode}{said}"

    def end(self) -> None:
        """Let the process end: it has no more questions."""
        atexit.unregister(self.end)
        with suppress(BrokenPipeError):
            self._asks.close()
        self._answers.close()
        if self._process.poll() is None:
            # A scheduler may be in an endless loop, also in a copy of the process.
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait()
        self._errors.close()


# By the process that started them (a fork of it has these, too), and by their Python.
_running: dict[tuple[int, Path, str], EngineProcess] = {}


def running_process(engine: InstalledEngine) -> EngineProcess:
    """The process of an engine, which is started if it does not run.

    Raises:
        InputError: it cannot be started, or the command runs no users' code.
    """
    key = os.getpid(), engine.python, engine.package
    if key not in _running or _running[key].has_ended:
        try:
            allow_code(engine.python)
            _running[key] = EngineProcess(engine)
        except InputError as error:
            raise engine.error(error.reason) from None
        except OSError as error:
            raise engine.error(f"{engine.python} cannot be run: {error.strerror}") from error
    return _running[key]


class EngineServer:
    """One simulated server in the process of an engine."""

    def __init__(self, engine: InstalledEngine, settings: Mapping[str, object]) -> None:
        """Make a server with these settings.

        Raises:
            InputError: the engine cannot be started, or refuses the settings.
        """
        self._engine = engine
        self._process = running_process(engine)
        self._name = f"{engine.package} {self._process.version()}"
        while self._process.dropped:
            self.ask_of(self._process.dropped.pop(), "close")
        self._number = self._process.num_opened
        self._process.num_opened += 1
        self.ask("open", settings)
        # Only noted: an answer may be awaited when this object is collected.
        weakref.finalize(self, self._process.dropped.append, self._number)

    def ask(self, method: str, *arguments: object) -> dict[str, Any]:
        """What the server answers.

        Raises:
            InputError: the engine raised something.
        """
        return self.ask_of(self._number, method, *arguments)

    def ask_of(self, server: int, method: str, *arguments: object) -> dict[str, Any]:
        answer = self._process.ask(server, method, *arguments)
        if "error" in answer:
            raise self.error(answer["error"])
        return answer

    def error(self, what: str) -> InputError:
        """An error about the key that names the engine."""
        return self._engine.error(f"{self._name} in {self._engine.folder}: {what}")
