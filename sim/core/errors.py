"""The two kinds of failure: bad input (the user's to mend) and a broken invariant (ours)."""


class InputError(Exception):
    """Bad input. The message is one line that names the file, the line or key, and the reason.

    Command lines print it on stderr and exit with code 2.
    """


class InvariantError(Exception):
    """A rule of docs/invariants.md does not hold. Always our fault."""


def require(holds: bool, what: str) -> None:
    """Raise InvariantError, saying `what` is wrong, unless an invariant holds."""
    if not holds:
        raise InvariantError(what)
