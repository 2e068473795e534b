"""Simulates a scenario in every way that must not change anything, and compares."""

import json
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from fuzz.judge import remarks
from sim.cli import main as simulate
from sim.commands.running.run_parts import in_workers
from sim.commands.running.simulate import run_built
from sim.core.errors import InputError
from sim.report.run_folder import write_requests
from sim.scenario.build import build
from sim.scenario.load import load_scenario
from sim.workers.executor import Outcomes, R, Runner, Task, ThisProcess, W

_LOG, _ROWS = Path("decisions.jsonl"), Path("requests.csv")


class Way(NamedTuple):
    """What one way of simulating gave: exit code, what was printed, a hash of the logs."""

    code: int
    out: str
    err: str
    digest: str


def combined(arguments: Sequence[str]) -> int:
    """Answer as a command does: `FILE [once]`; the exit code is that of `simulate run`.

    It prints the summary, with a hash of the decision log and of the table of requests. `once`: one
    way only, for a process with other hashes of texts.
    """
    file, *once = arguments
    fast = _simulated(file)
    if not once:
        for name, way in _others(file, fast):
            for part, value in way._asdict().items():
                if value != (expected := getattr(fast, part)):
                    shown = f"{value!s:.200} / {expected!s:.200}"
                    sys.stderr.write(f"internal error: {name}: another {part}: {shown}\n")
    sys.stderr.write(fast.err)
    if fast.code == 0:
        sys.stdout.write(json.dumps({**json.loads(fast.out), "digest": fast.digest}) + "\n")
    return fast.code


def _others(file: str, fast: Way) -> Iterator[tuple[str, Way]]:
    yield "step by step, checked", _simulated(file, "--no-fast-forward", "--check")
    if fast.code == 0:
        yield "two jobs", fast._replace(digest=_in_parts(file) or fast.digest)
        return
    # What is refused before anything is simulated is refused by `validate` in the same words.
    checked = _ended(["validate", file])
    if checked.code:
        yield "validate", checked._replace(out=fast.out, digest=fast.digest)


def _simulated(file: str, *options: str) -> Way:
    """`simulate run`, with all its logs."""
    written = [f"--decisions={_LOG}", f"--requests={_ROWS}", "--format=json"]
    return _ended(["run", file, *written, *options])


def _ended(arguments: list[str]) -> Way:
    out, err = StringIO(), _Shown()
    _LOG.unlink(missing_ok=True)
    _ROWS.unlink(missing_ok=True)
    with redirect_stdout(out), redirect_stderr(err):
        code = simulate(arguments)
    shown = out.getvalue()
    if code == 0 and shown.startswith("{"):
        summary = json.loads(shown)
        summary.pop("wall_seconds")
        shown = json.dumps(summary)
    logs = [path.read_bytes() for path in (_LOG, _ROWS) if path.exists()]
    return Way(code, shown, remarks(err.getvalue()), _hash(*logs))


class _Shown(StringIO):
    """Keeps what is printed, and shows how far a long run is to who waits for a word."""

    def write(self, text: str) -> int:
        if not remarks(text) and sys.__stderr__ is not None:
            sys.__stderr__.write(text)
            sys.__stderr__.flush()
        return super().write(text)


def _hash(*contents: bytes) -> str:
    return sha256(b"\0".join(contents)).hexdigest()


class _Packing:
    """An executor that starts no process, but packs what goes to a worker and comes back."""

    def run(self, tasks: Iterable[Task[W]], runner: Runner[W, R]) -> Outcomes[R]:
        for task in tasks:
            [outcome] = ThisProcess().run([_packed(task)], runner)
            yield _packed(outcome)


def _packed(value: R) -> R:
    made: R = pickle.loads(pickle.dumps(value))  # noqa: S301 - our own
    return made


def _in_parts(file: str) -> str:
    """The hash of the logs of two jobs; empty: the run needs one process."""
    with redirect_stderr(StringIO()):
        built = build(load_scenario(Path(file)))
        simulation: Callable[..., object] = in_workers(built, 2)
        if not isinstance(simulation, partial):
            return ""
        parts = partial(simulation, executor=_Packing())
        try:
            log = run_built(built, decisions=_LOG, simulation=parts)
        except InputError as error:
            return f"refused: {error}"
    write_requests(log, _ROWS)
    return _hash(_LOG.read_bytes(), _ROWS.read_bytes())
