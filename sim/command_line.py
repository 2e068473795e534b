"""What all command lines of the project share: options, exit codes, and one-line errors.

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
from pathlib import Path
from typing import Annotated, Any

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
        help="show the version, and whether this build is compiled",
    ),
]


Scenario = Annotated[Path, typer.Argument(metavar="FILE", help="scenario file (YAML)")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY.PATH=VALUE",
        help="override a key of the scenario; may be repeated; paths are from the current folder",
    ),
]


def out_option(meaning: str, metavar: str = "DIR") -> Any:
    """The option for what a command writes; it has the same name in every command."""
    return typer.Option("-o", "--out", metavar=metavar, help=meaning)


class OutputFormat(StrEnum):
    """How a command prints its results."""

    TABLE = "table"
    JSON = "json"


def new_app(description: str) -> typer.Typer:
    """Returns a command line that has no commands yet."""
    app = typer.Typer(
        help=description,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def options(version: Version = False) -> None:
        """Options before the command."""

    return app


def run_app(app: typer.Typer, program: str, argv: Sequence[str] | None) -> int:
    """Run the command line of `program` and return the exit code; without arguments, show help."""
    # Pydantic's search for plugins reads a file of every installed package; none is needed here.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    skip_last_collections()
    if not (sys.argv[1:] if argv is None else argv):
        argv = ["--help"]
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal cannot show is escaped and does not raise.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with rare_collections():
            code = app(args=argv, prog_name=program, standalone_mode=False)
        # Flush here: at the interpreter's exit, a closed pipe would print an error.
        sys.stdout.flush()
        if code == _INTERRUPTED:
            # Typer turns Ctrl-C into this exit code, without a message.
            _complain(program, "interrupted")
    except InputError as error:
        code = 2
        _complain(program, str(error))
    except KeyboardInterrupt:
        code = _INTERRUPTED
        _complain(program, "interrupted")
    except BrokenPipeError:
        # The reader of stdout is gone. With /dev/null in its place, the exit prints no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:
        code = _explain(program, error)
    return code if isinstance(code, int) else 0


def use_one_blas_thread() -> None:
    """Keep numpy from starting BLAS threads. Call it before numpy loads.

    For programs without linear algebra: idle BLAS threads use CPU time while they wait for work. A
    number of threads that the user has set is kept.
    """
    if not any(name in os.environ for name in _BLAS_THREADS):
        os.environ[_BLAS_THREADS[0]] = "1"


@contextmanager
def with_tracebacks(wanted: bool) -> Iterator[None]:
    """If `wanted`, print the traceback of bad input on stderr before its one-line error."""
    try:
        yield
    except InputError:
        if wanted:
            traceback.print_exc()
        raise


def _explain(program: str, error: Exception) -> int:
    """Print why a command failed; returns the exit code.

    Typer's own exceptions are recognised by a method or their name, because Typer moves their
    classes from version to version.
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
