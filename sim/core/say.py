"""Prints remarks and errors on stderr."""

import sys

from sim.core.messages import error_line, printable_line

_MAX_REMARK = 1_000


def say(text: str) -> None:
    """Print a remark as one printable line at once, for example the progress of a command."""
    _write(printable_line(text, _MAX_REMARK))


def complain(text: str) -> None:
    """Print an error; see `error_line`."""
    _write(error_line(text))


def _write(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
