"""Checks of arguments, for commands that take either run logs or a measured run."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sim.commands.import_results import recognise, sniff
from sim.core.errors import InputError
from sim.families import SERVER_LOG

_SCENARIO_SUFFIXES = (".yaml", ".yml")


def is_scenario(name: str) -> bool:
    """Whether the first argument of a command is a scenario file; otherwise it is a profile."""
    return Path(name).suffix.lower() in _SCENARIO_SUFFIXES


def are_results(paths: Sequence[Path]) -> bool:
    """Whether files are results that `simulate import` reads; otherwise they are run logs."""
    if paths[0].is_dir():
        return True
    with suppress(InputError):
        sniff(paths[0])
        return True
    return False


def are_server_logs(paths: Sequence[Path]) -> bool:
    """Whether files are the text logs of a server; otherwise they are run logs."""
    with suppress(InputError):
        return recognise(paths[0]) == SERVER_LOG
    return False


def only_with(what: str, options: Mapping[str, object]) -> None:
    """Raises InputError if any of these options was given; they are allowed only with `what`."""
    given = [name for name, value in options.items() if value is not None and value is not False]
    if given:
        raise InputError(f"{given[0]}: only with {what}")


def the_one_run(paths: Sequence[Path]) -> Path:
    """The only path. Raises InputError if there are several."""
    if len(paths) > 1:
        raise InputError(f"{paths[1]}: one measured run at a time, got {len(paths)}")
    return paths[0]
