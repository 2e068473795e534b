"""The pool of layers with a sliding window: a number of free tokens, in whole pages.

Tokens in it have the same page size as in the pool of the other layers, and no ids: the real runner
serves no model with sliding windows.
"""

from sim.core.errors import InvariantError


class WindowPool:
    """Free tokens of the pool.

    Attributes:
        num_tokens: size of the pool.
        free_tokens: tokens that are free.
    """

    def __init__(self, num_tokens: int) -> None:
        self.num_tokens = self.free_tokens = num_tokens

    def take(self, num_tokens: int) -> None:
        """Allocate tokens. Raises InvariantError if too few are free."""
        if num_tokens > self.free_tokens:
            raise InvariantError(f"{num_tokens} window tokens taken, {self.free_tokens} free")
        self.free_tokens -= num_tokens

    def free(self, num_tokens: int) -> None:
        """Give tokens back. Raises InvariantError if some were free already."""
        self.free_tokens += num_tokens
        if num_tokens < 0 or self.free_tokens > self.num_tokens:
            raise InvariantError(f"{num_tokens} window tokens were freed, some were free already")
