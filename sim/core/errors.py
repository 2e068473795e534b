"""The kinds of failure: bad input, which the user can correct, bugs, and lost workers."""

# A key of a document: the names and list indices that lead to it from the top.
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
    """A rule of docs/explanation/invariants.md does not hold. This is always a bug of servetwin."""


class WorkerError(Exception):
    """A worker ended, or met a defect of servetwin, which is then shown with its traceback."""

    def __init__(self, message: str, trace: str | None = None) -> None:
        super().__init__(message)
        self.is_defect = trace is not None
        if trace is not None:
            self.add_note(trace)


def require(holds: bool, what: str) -> None:
    """Raise InvariantError, saying `what` is wrong, unless an invariant holds."""
    if not holds:
        raise InvariantError(what)
