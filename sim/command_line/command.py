"""Makes a command of a function: its arguments are the command's arguments and options."""

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, is_dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from sim.core.errors import InputError
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


def format_option(what: str) -> Any:
    """The option for the `OutputFormat` of what a command prints."""
    return typer.Option("--format", help=f"format of the {what}")


def out_option(meaning: str, metavar: str = "DIR") -> Any:
    """The option for what a command writes; it has the same name in every command."""
    return typer.Option("-o", "--out", metavar=metavar, help=meaning)


def file_option(meaning: str) -> Any:
    """An option that names a file."""
    return typer.Option(metavar="FILE", help=meaning)


def renamed(old: str, new: str) -> Any:
    """A hidden option that says how it is spelled now."""

    def refuse(given: str | None) -> None:
        if given is not None:
            raise InputError(f"{old}: the format of what is read is {new} now")

    return typer.Option(old, hidden=True, callback=refuse)


@dataclass(frozen=True, slots=True)
class ProgramCommand:
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
    option `--user-code`, which is obeyed while it runs.
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
