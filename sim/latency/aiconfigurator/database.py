"""What the composition of a step asks of measured operator times."""

from collections.abc import Callable, Sequence
from typing import Protocol

from sim.latency.aiconfigurator.operators import AttentionOperator, TokenOperator


class OperatorDatabase(Protocol):
    """Milliseconds of operators on one kind of device. Sizes are whole numbers from 1 on.

    Every method takes sizes of a model once and gives a function of the sizes of a step, which
    raises InputError where there is no data to answer from.
    """

    @property
    def source(self) -> str:
        """Where the times come from: package, version, licence, database."""
        ...

    def token_timer(self, operators: Sequence[TokenOperator]) -> Callable[[int], float]:
        """All the operators together, over a number of tokens."""
        ...

    def prefill_timer(self, attention: AttentionOperator) -> Callable[[int, int, int], float]:
        """Attention of prefill rows: over their number, and each row's new and cached tokens.

        The number of cached tokens may be 0.
        """
        ...

    def decode_timer(self, attention: AttentionOperator) -> Callable[[int, int], float]:
        """Attention of a number of decode rows, each attending to so many tokens."""
        ...
