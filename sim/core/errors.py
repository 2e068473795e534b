"""The two kinds of failure: bad input (the user's to mend) and a broken invariant (ours)."""

# A key of a scenario: names of keys and indices of lists, from the outside in.
KeyPath = tuple[str | int, ...]


class InputError(Exception):
    """Bad input. The message is one line that names the file, the line or key, and the reason.

    Command lines print it on stderr and exit with code 2.

    Attributes:
        reason: what is wrong; the whole message but for the key.
        key: the scenario's key that is wrong, if the error is about one. Code that knows
            the scenario's file raises it again with the file and the line.
    """

    def __init__(self, reason: str, *, key: KeyPath = ()) -> None:
        super().__init__(f"{'.'.join(map(str, key))}: {reason}" if key else reason)
        self.reason = reason
        self.key = key


class InvariantError(Exception):
    """A rule of docs/invariants.md does not hold. Always our fault."""
