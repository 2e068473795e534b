"""Options that several commands have."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sim.core.errors import InputError

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
