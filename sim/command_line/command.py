"""Makes a command of a function: its arguments are the command's arguments and options."""

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

_UserCode = Annotated[
    bool | None,
    typer.Option(
        "--user-code/--no-user-code",
        help="run Python classes (module:Class) that a file names, or refuse to;"
        " default: run those that your scenario names, not those that a log names",
    ),
]


@dataclass(frozen=True, slots=True)
class ProgramCommand:
    """A command of a program.

    Attributes:
        run: its function, as Typer takes it; returns the exit code, None: 0.
        cls: what prints its help; None: as usual.
    """

    run: Function
    cls: type[TyperCommand] | None


def command(
    *, user_code: bool = False, cls: type[TyperCommand] | None = None
) -> Callable[[Function], ProgramCommand]:
    """Make a command of a function, whose arguments are declared as for Typer.

    Where the type of an argument is a dataclass, each of its fields is an argument of the command,
    declared there; the function gets them as one object.

    Args:
        user_code: the command has the option `--user-code`, which is obeyed while it runs.
        cls: see `ProgramCommand`.
    """

    def decorate(function: Function) -> ProgramCommand:
        run = _with_fields(function)
        return ProgramCommand(_may_run_user_code(run) if user_code else run, cls)

    return decorate


def _with_fields(function: Function) -> Function:
    declared = inspect.signature(function, eval_str=True).parameters
    fields = {
        name: inspect.signature(argument.annotation).parameters
        for name, argument in declared.items()
        if isinstance(argument.annotation, type) and is_dataclass(argument.annotation)
    }

    @wraps(function)
    def run(**given: Any) -> int | None:
        for name, own in fields.items():
            make: Any = declared[name].annotation
            given[name] = make(**{field: given.pop(field) for field in own})
        return function(**given)

    parameters = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, argument in declared.items()
        for one in fields.get(name, {name: argument}).values()
    ]
    # Typer reads the options from here.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _may_run_user_code(function: Function) -> Function:
    @wraps(function)
    def run(*, user_code: bool | None = None, **given: Any) -> int | None:
        with user_modules.user_code(user_code):
            return function(**given)

    option = inspect.Parameter(
        "user_code", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_UserCode
    )
    signature = inspect.signature(function)
    added = signature.replace(parameters=[*signature.parameters.values(), option])
    run.__signature__ = added  # type: ignore[attr-defined]
    return run


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


class Backend(StrEnum):
    """Where workers run."""

    PROCESS = "process"
    RAY = "ray"


class OutputFormat(StrEnum):
    """How a command prints its results."""

    TABLE = "table"
    JSON = "json"


def out_option(meaning: str, metavar: str = "DIR") -> Any:
    """The option for what a command writes; it has the same name in every command."""
    return typer.Option("-o", "--out", metavar=metavar, help=meaning)


def renamed(old: str, new: str) -> Any:
    """A hidden option that says how it is spelled now."""

    def refuse(given: str | None) -> None:
        if given is not None:
            raise InputError(f"{old}: the format of what is read is {new} now")

    return typer.Option(old, hidden=True, callback=refuse)


@contextmanager
def with_tracebacks(wanted: bool) -> Iterator[None]:
    """If `wanted`, print the traceback of bad input on stderr before its one-line error."""
    try:
        yield
    except InputError:
        if wanted:
            traceback.print_exc()
        raise
