"""The interface of a database of measured operator times."""

from collections.abc import Callable, Sequence
from typing import Protocol

from sim.latency.aiconfigurator.operators import AttentionOperator, TokenOperator


class OperatorDatabase(Protocol):
    """Times of operators on one kind of device, in ms. Sizes are whole numbers from 1 on.

    Every method takes sizes of a model and returns a function from sizes of a step to a time. That
    function raises InputError if the database has no data for them.
    """

    @property
    def source(self) -> str:
        """Where the times come from: package, version, licence, database."""
        ...

    def token_timer(self, operators: Sequence[TokenOperator]) -> Callable[[int], float]:
        """Returns the function from a number of tokens to the sum of these operators' times."""
        ...

    def prefill_timer(self, attention: AttentionOperator) -> Callable[[int, int, int], float]:
        """Returns the function from (rows, new tokens a row, cached tokens a row) to a time.

        The number of cached tokens may be 0.
        """
        ...

    def decode_timer(self, attention: AttentionOperator) -> Callable[[int, int], float]:
        """Returns the function from (rows, tokens that each row attends to) to a time."""
        ...
