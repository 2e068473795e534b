"""The kinds of failure: bad input, which the user can correct, defects, and lost workers."""

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
