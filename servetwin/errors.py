"""Errors of the Python API: the lines that the command line would print."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from sim.core.errors import InputError, error_line

_P = ParamSpec("_P")
_R = TypeVar("_R")


def with_one_line_errors(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a function raise bad input, and files that cannot be used, as one printable line."""

    @wraps(call)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return call(*args, **kwargs)
        except InputError as error:
            reason, cause = str(error), error.__cause__
        except OSError as error:
            reason, cause = f"{error.filename or 'file'}: {error.strerror or error}", error
        raise InputError(error_line(reason)) from cause

    return wrapper
