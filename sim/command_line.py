"""How every command line of the project ends: exit codes, and one line for what went wrong.

Results go to stdout, diagnostics to stderr. Exit codes: 0 done; 1 a comparison or a run failed, or
the program has a defect; 2 bad input; 130 interrupted.
"""

import io
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Annotated

import typer

from sim import __version__
from sim.core.errors import InputError
from sim.core.garbage import rare_collections, skip_last_collections

_INTERRUPTED = 130
_BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def is_compiled() -> bool:
    """Whether the simulator's hot modules are the compiled ones (docs/how-to/compiled.md)."""
    core = find_spec("sim.engine.core")
    origin = None if core is None else core.origin
    return origin is not None and origin.endswith(tuple(EXTENSION_SUFFIXES))


def _show_version(wanted: bool) -> None:
    if wanted:
        build = "compiled" if is_compiled() else "pure Python"
        sys.stdout.write(f"servetwin {__version__} ({build})\n")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version",
        is_eager=True,
        callback=_show_version,
        help="say which this is, and whether compiled",
    ),
]


class OutputFormat(StrEnum):
    """How a command prints its results."""

    TABLE = "table"
    JSON = "json"


def new_app(description: str) -> typer.Typer:
    """A command line to add commands to."""
    app = typer.Typer(
        help=description,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def options(version: Version = False) -> None:
        """What comes before a command."""

    return app


def run_app(app: typer.Typer, program: str, argv: Sequence[str] | None) -> int:
    """Run the command line of `program`; returns the exit code. Without arguments: its help."""
    # Looking for plugins reads a file of every installed package; none of them is needed here.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    skip_last_collections()
    if not (sys.argv[1:] if argv is None else argv):
        argv = ["--help"]
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal without the characters of a table or a name is no failure.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with rare_collections():
            code = app(args=argv, prog_name=program, standalone_mode=False)
        # Here, not at the interpreter's exit, where a closed pipe would be reported.
        sys.stdout.flush()
        if code == _INTERRUPTED:
            # Typer makes an exit code of Ctrl-C, and says nothing.
            _complain(program, "interrupted")
    except InputError as error:
        code = 2
        _complain(program, str(error))
    except KeyboardInterrupt:
        code = _INTERRUPTED
        _complain(program, "interrupted")
    except BrokenPipeError:
        # The reader of stdout has gone; nobody is left to tell, now or at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:
        code = _explain(program, error)
    return code if isinstance(code, int) else 0


def use_one_blas_thread() -> None:
    """Let numpy start no threads, unless the user has said how many. Call it before numpy loads.

    For programs without linear algebra: the threads of a pool spin for work that never comes.
    """
    if not any(name in os.environ for name in _BLAS_THREADS):
        os.environ[_BLAS_THREADS[0]] = "1"


@contextmanager
def with_tracebacks(wanted: bool) -> Iterator[None]:
    """Where wanted, bad input shows its traceback on stderr before its one line."""
    try:
        yield
    except InputError:
        if wanted:
            traceback.print_exc()
        raise


def _explain(program: str, error: Exception) -> int:
    """Say what ended a command; returns the exit code.

    Typer's own exceptions are known by what they can do: their classes move between its versions.
    """
    if hasattr(error, "format_message"):
        fault = error.format_message().replace("Value error, ", "").strip().removesuffix(".")
        _complain(program, f"{fault} (see {program} --help)")
        return 2
    if type(error).__name__ == "Abort":
        _complain(program, "interrupted")
        return _INTERRUPTED
    traceback.print_exc()
    _complain(program, f"internal error, not your input: {type(error).__name__}: {error}")
    return 1


def _complain(program: str, message: str) -> None:
    sys.stderr.write(f"{program}: {' '.join(message.split())}\n")
