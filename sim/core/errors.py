"""The kinds of failure, and the text of errors and remarks, each on one line."""

import sys
from collections.abc import Iterable
from difflib import get_close_matches

# A key of a scenario or another nested document: the names and list indices that lead to it.
KeyPath = tuple[str | int, ...]


class InputError(Exception):
    """Bad input. The message is one line that names the file, the line or key, and the reason.

    Whatever reads or checks what a user gives may raise it. Command lines print it on stderr and
    exit with code 2.

    Attributes:
        reason: what is wrong: the message without the key.
        key: the scenario's key that is wrong, or empty. Code that knows the scenario's file raises
            such an error again, with file and line.
    """

    def __init__(self, reason: str, *, key: KeyPath = ()) -> None:
        super().__init__(f"{'.'.join(map(str, key))}: {reason}" if key else reason)
        self.reason = reason
        self.key = key


class InvariantError(Exception):
    """An invariant does not hold (docs/explanation/invariants.md). It is a defect of servetwin."""


class AccountError(InvariantError):
    """Requests or their KV are left at the end of a run. A user's class may have kept them."""

    def __str__(self) -> str:
        # Not in `__init__`: SimPy makes an error of a process anew, with the same arguments.
        return f"the account of the run does not add up: {super().__str__()}"


class WorkerError(Exception):
    """A worker process ended, or met a defect of servetwin.

    Attributes:
        is_defect: whether it is a defect; then a note of the error has the worker's traceback.
    """

    def __init__(self, message: str, trace: str | None = None) -> None:
        super().__init__(message)
        self.is_defect = trace is not None
        if trace is not None:
            self.add_note(trace)


def require(holds: bool, what: str) -> None:
    """Raise InvariantError, which says `what` is wrong, unless an invariant holds."""
    if not holds:
        raise InvariantError(what)


# Characters that are shown of a value, of an error and of a remark.
_MAX_SHOWN = 60
MAX_ERROR = 300
_MAX_REMARK = 1_000
_MANY_DIGITS = 10**40
# Of a line that is too long, this many characters at its end stay.
_END = 90


def shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def dotted(path: KeyPath) -> str:
    """A key path as `--set` takes it: `workload.parts.0.tenant`."""
    return one_line(".".join(shorten(str(part)) for part in path))


def describe(value: object) -> str:
    """A YAML value for a message: `the string 'x'`, `a list`, `null`, or the number itself."""
    match value:
        case None:
            text = "null"
        case bool():
            text = str(value).lower()
        case str():
            text = f"the string {shorten(repr(value))}"
        case dict():
            text = "a mapping"
        case list() | tuple():
            text = "a list"
        case int() if abs(value) >= _MANY_DIGITS:
            text = "a number of over 40 digits"
        case _:
            text = shorten(str(value))
    return text


def did_you_mean(word: object, known: Iterable[str]) -> str | None:
    """The known name that is spelled most like `word`; None if none is similar."""
    if not isinstance(word, str):
        return None
    near = get_close_matches(word, sorted(known), n=1)
    if not near and word.lower() != word:
        near = get_close_matches(word.lower(), sorted(known), n=1)
    return near[0] if near else None


def unknown_value(what: str, value: object, known: Iterable[str]) -> str:
    """`unknown kind 'synthtic' (did you mean synthetic?)`; all names if none is similar."""
    names = list(known)
    if not isinstance(value, str):
        return f"must be one of {', '.join(names)}, got {describe(value)}"
    shown = shorten(repr(value))
    near = did_you_mean(value, names)
    if near is not None:
        return f"unknown {what} {shown} (did you mean {near}?)"
    if len(names) == 1:
        return f"unknown {what} {shown} (it can only be {names[0]})"
    return f"unknown {what} {shown} (one of: {', '.join(names)})"


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """`unknown model 'lama' (did you mean llama? known: gpt2, llama)`: always the whole list.

    All known names that begin with `name` are offered.
    """
    known = sorted(known)
    begin = [word for word in known if word.startswith(name.lower())] if name else []
    near = begin or get_close_matches(name.lower(), known, n=1)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return f"unknown {what} {name!r} ({hint}known: {', '.join(known)})"


def error_line(text: str) -> str:
    """The text as one printable line of at most `MAX_ERROR` characters.

    The middle of a longer one is left out: errors begin with file and key, and may end in a hint.
    """
    return printable_line(text, MAX_ERROR)


def printable_line(text: str, max_length: int) -> str:
    """The text on one line; the middle is left out if it is longer than `max_length`."""
    # A text may be as long as a file: only its ends are looked at.
    if len(text) > 8 * max_length:
        text = f"{text[: 4 * max_length]}{text[-4 * max_length :]}"
    line = one_line(" ".join(text.split()))
    if len(line) <= max_length:
        return line
    return f"{line[: max_length - _END - 5]} ... {line[-_END:]}"


def one_line(text: str) -> str:
    """The text with line breaks and other unprintable characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def say(text: str) -> None:
    """Print a remark as one line on stderr at once, for example the progress of a command."""
    _write(printable_line(text, _MAX_REMARK))


def complain(text: str) -> None:
    """Print an error on stderr; see `error_line`."""
    _write(error_line(text))


def _write(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
