"""What all command lines of the project share: options, commands, exit codes, one-line errors.

Results go to stdout, diagnostics to stderr. A file called `-` is standard input. Exit codes: 0
done; 1 a comparison or a run failed, or the program has a defect; 2 bad input; 130 interrupted; 143
terminated.
"""

import errno
import inspect
import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, is_dataclass
from enum import StrEnum
from functools import wraps
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand

from sim import __version__
from sim.compiled.finder import why_pure
from sim.core.errors import AccountError, InputError, WorkerError, complain
from sim.core.files import inputs_kept
from sim.core.garbage import rare_collections, skip_last_collections
from sim.user import modules as user_modules

Function = Callable[..., int | None]

# Arguments and options that several commands have.
Scenario = Annotated[Path, typer.Argument(metavar="FILE", help="scenario file (YAML)")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY.PATH=VALUE",
        help="override a key of the scenario; may be repeated; paths are from the current folder",
    ),
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="number of workers; default: one for each core")
]
Resume = Annotated[
    bool, typer.Option("--resume/--fresh", help="reuse the folder's points, or run all again")
]
RayAddress = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="address of a Ray cluster, or auto")
]
_UserCode = Annotated[
    bool | None,
    typer.Option(
        "--user-code/--no-user-code",
        help="run Python classes (module:Class) that a file names, or refuse to;"
        " default: run those that your scenario names, not those that a log names",
    ),
]


class Backend(StrEnum):
    """Where workers run."""

    PROCESS = "process"
    RAY = "ray"


class OutputFormat(StrEnum):
    """How a command prints its results."""

    TABLE = "table"
    JSON = "json"


class SummaryFormat(StrEnum):
    """How a run's summary is printed: `VLLM_BENCH` is the block that `vllm bench serve` prints."""

    TABLE = "table"
    JSON = "json"
    VLLM_BENCH = "vllm-bench"


def format_option(what: str) -> Any:
    """The option for the format of what a command prints."""
    return typer.Option("--format", help=f"format of the {what}")


def out_option(meaning: str, metavar: str = "DIR") -> Any:
    """The option for what a command writes; it has the same name in every command."""
    return typer.Option("-o", "--out", metavar=metavar, help=meaning)


def file_option(meaning: str) -> Any:
    """An option that names a file."""
    return typer.Option(metavar="FILE", help=meaning)


def renamed(old: str, new: str, what: str = "the format of what is read") -> Any:
    """The old spelling of an option, not shown in help: it is refused with the new spelling."""

    def refuse(given: str | None) -> None:
        if given is not None:
            raise InputError(f"{old}: {what} is {new} now")

    return typer.Option(old, hidden=True, callback=refuse)


class ProgramCommand(NamedTuple):
    """A command of a program.

    `run` is its function, as Typer takes it, and returns the exit code (None: 0); `cls` prints its
    help.
    """

    run: Function
    cls: type[TyperCommand] | None


def command(
    *, user_code: bool = False, cls: type[TyperCommand] | None = None
) -> Callable[[Function], ProgramCommand]:
    """Make a command of a function, whose arguments are declared as for Typer.

    Where the type of an argument is a dataclass, each of its fields is an argument of the command,
    declared there; the function gets them as one object. With `user_code`, the command has the
    option `--user-code`, which decides while it runs whether classes of users may run. `cls` prints
    the command's help.
    """

    def decorate(function: Function) -> ProgramCommand:
        declared = inspect.signature(function, eval_str=True).parameters
        fields = {
            name: inspect.signature(argument.annotation).parameters
            for name, argument in declared.items()
            if isinstance(argument.annotation, type) and is_dataclass(argument.annotation)
        }

        @wraps(function)
        def run(**given: Any) -> int | None:
            allowed = user_modules.user_code(given.pop("user_code")) if user_code else nullcontext()
            for name, own in fields.items():
                make: Any = declared[name].annotation
                given[name] = make(**{field: given.pop(field) for field in own})
            with allowed:
                return function(**given)

        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            one.replace(kind=keyword)
            for name, argument in declared.items()
            for one in fields.get(name, {name: argument}).values()
        ]
        if user_code:
            option = inspect.Parameter("user_code", keyword, default=None, annotation=_UserCode)
            parameters.append(option)
        # Typer reads the options from here.
        vars(run)["__signature__"] = inspect.Signature(parameters)
        return ProgramCommand(run, cls)

    return decorate


@contextmanager
def with_tracebacks(wanted: bool) -> Iterator[None]:
    """If `wanted`, print the traceback of bad input on stderr before its one-line error."""
    try:
        yield
    except InputError:
        if wanted:
            traceback.print_exc()
        raise


_INTERRUPTED, _TERMINATED = 130, 143
_BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def _show_version(wanted: bool) -> None:
    if wanted:
        reason = why_pure()
        build = "compiled" if reason is None else f"pure Python: {reason}"
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


def no_options(_version: Version = False) -> None:
    """The options before a command: the version alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program, and where its commands are.

    Attributes:
        name: what a user calls it.
        about: the first line of its help.
        package: its modules hold the commands: a `ProgramCommand` under each command's name. They
            import what a command needs only when it runs, so that help is quick.
        commands: their names, in the order of the help.
        options: takes the options before the command.
        modules: by command, the module of each that has none of its name.
    """

    name: str
    about: str
    package: str
    commands: Sequence[str]
    options: Callable[..., None] = no_options
    modules: Mapping[str, str] = field(default_factory=dict)

    def app(self, commands: Sequence[str] = ()) -> typer.Typer:
        """The command line, with these commands or with all."""
        app = new_app(self.about, self.options)
        for name in commands or self.commands:
            own = f"{name}_" if iskeyword(name) else name
            module = import_module(f"{self.package}.{self.modules.get(name, own)}")
            command: ProgramCommand = getattr(module, own)
            app.command(name, cls=command.cls)(command.run)
        return app

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the command line and return the exit code; load only the command that it calls."""
        given = sys.argv[1:] if argv is None else argv
        called = [name for name in given[:1] if name in self.commands]
        return run_app(self.app(called), self.name, argv)


def new_app(description: str, options: Callable[..., None] = no_options) -> typer.Typer:
    """A command line without commands."""
    app = typer.Typer(
        help=description,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(options)
    return app


def run_app(app: typer.Typer, program: str, argv: Sequence[str] | None) -> int:
    """Run the command line of `program` and return the exit code; without arguments, show help."""
    # Pydantic's search for plugins reads a file of every installed package; none is needed here.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    skip_last_collections()
    if not (sys.argv[1:] if argv is None else argv):
        argv = ["--help"]
    signals: list[int] = []
    with ExitStack() as opened:
        _prepare_streams(opened)
        try:
            if sys.stdout is None:
                raise InputError("stdout is closed, so the results would be lost: give > /dev/null")
            opened.enter_context(user_modules.no_user_code())
            rare = rare_collections(ends_process=argv is None)
            with rare, inputs_kept(), _ended_by_signals(signals):
                code = app(args=argv, prog_name=program, standalone_mode=False)
                # Flush here: at the interpreter's exit, a closed pipe would print an error.
                sys.stdout.flush()
        except (Exception, KeyboardInterrupt) as error:
            if not _is_interrupt(error):
                names = {command.name for command in app.registered_commands}
                given = sys.argv[1:] if argv is None else argv
                return _explain(program, [name for name in given[:1] if name in names], error)
            code = _INTERRUPTED
        if code == _INTERRUPTED:
            # Typer, too, turns Ctrl-C into this exit code, without a message.
            complain(f"{program}: {'terminated' if signals else 'interrupted'}")
            code = _TERMINATED if signals else _INTERRUPTED
            if argv is None:
                _end_process(code)
        return code if isinstance(code, int) else 0


def _prepare_streams(opened: ExitStack) -> None:
    if sys.stderr is None:
        # The caller closed it (`2>&-`): what is written to it is not wanted.
        stream = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        sys.stderr = opened.enter_context(stream)
        opened.callback(setattr, sys, "stderr", None)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal cannot show is escaped and does not raise.
        sys.stdout.reconfigure(errors="backslashreplace")


@contextmanager
def _ended_by_signals(signals: list[int]) -> Iterator[None]:
    """Inside, SIGTERM ends a command as Ctrl-C does: workers stop, temporary files are removed.

    Ctrl-C gets Python's handler where it has another: in a job that a shell's script has started
    with `&`, the shell lets it be ignored; while the program loads, it may end the process at once.

    `signals` gets the number of SIGTERM if it comes.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        # The loop of asyncio has a handler that lets its task end in order.
        taken = signal.getsignal(signal.SIGINT)
        (taken if callable(taken) else signal.default_int_handler)(signal.SIGINT, frame)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, end)}
    if signal.getsignal(signal.SIGINT) in {signal.SIG_IGN, signal.SIG_DFL}:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def use_one_blas_thread() -> None:
    """Keep numpy from starting BLAS threads. Call it before numpy loads.

    For programs without linear algebra: idle BLAS threads use CPU time while they wait for work. A
    number of threads that the user has set is kept.
    """
    if not any(name in os.environ for name in _BLAS_THREADS):
        os.environ[_BLAS_THREADS[0]] = "1"


def _end_process(code: int) -> NoReturn:
    """End the process at once, without Python's own end.

    A library that was being loaded may be half loaded, and crash there. And Python would end by
    SIGINT, whatever the code, if the interrupt came while it executed code that was given as a
    string, as the library dataclasses does.
    """
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(code)


def _is_interrupt(error: BaseException) -> bool:
    # Some C extensions turn an interrupt while they load into an ImportError.
    source = error.__cause__ if isinstance(error, ImportError) else error
    return isinstance(source, KeyboardInterrupt) or type(error).__name__ == "Abort"


def _explain(program: str, command: Sequence[str], error: BaseException) -> int:
    """Print why a command failed; returns the exit code.

    `command` has the name of the command; it is empty if none was called.

    Typer's own exceptions are recognised by a method or their name, because Typer moves their
    classes from version to version.
    """
    code, reason = 2, str(error)
    match error:
        case InputError():
            pass
        case BrokenPipeError():
            # The reader of stdout is gone. With /dev/null in its place, the exit prints no error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        case RuntimeError() if reason.startswith("Symlink loop"):
            reason = reason.replace("Symlink loop from", "symbolic links go in a circle:")
        case AccountError() | WorkerError(is_defect=False):
            code = 1
        case MemoryError():
            code, reason = 1, "out of memory"
        case OSError(errno=None | errno.ENOENT, filename=None):
            # No folder for temporary files, say Python and its libraries.
            reason = error.strerror or str(error)
        case OSError():
            # Files of the user are named where they are opened; what is left is mostly stdout.
            reason = f"{error.filename or 'stdout'}: {error.strerror or error}"
        case _ if hasattr(error, "format_message"):
            fault = error.format_message().replace("Value error, ", "").strip().removesuffix(".")
            reason = f"{fault} (see {' '.join([program, *command])} --help)"
        case _:
            traceback.print_exc()
            code, reason = 1, f"internal error, not your input: {type(error).__name__}: {error}"
    complain(f"{program}: {reason}")
    return code
