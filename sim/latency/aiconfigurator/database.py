"""The questions that composing a step's time asks a database of operator times."""

from collections.abc import Callable, Sequence
from typing import Protocol

from sim.latency.aiconfigurator.operators import AttentionOperator, TokenOperator


class OperatorDatabase(Protocol):
    """Milliseconds of operators on one kind of device. Sizes are whole numbers from 1 on.

    Every method takes sizes of a model and returns a function of sizes of a step. That function
    raises InputError where the database has no data.
    """

    @property
    def source(self) -> str:
        """Where the times come from: package, version, licence, database."""
        ...

    def token_timer(self, operators: Sequence[TokenOperator]) -> Callable[[int], float]:
        """The time of all these operators together, over a number of tokens."""
        ...

    def prefill_timer(self, attention: AttentionOperator) -> Callable[[int, int, int], float]:
        """Attention of prefill rows, over their number and each row's new and cached tokens.

        The number of cached tokens may be 0.
        """
        ...

    def decode_timer(self, attention: AttentionOperator) -> Callable[[int, int], float]:
        """Attention of decode rows, over their number and the tokens that each attends to."""
        ...
