"""What the composition of a step asks of measured operator times."""

from collections.abc import Callable, Sequence
from typing import Protocol

from sim.latency.aiconfigurator.operators import Attention, TokenOperator


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

    def prefill_timer(self, attention: Attention) -> Callable[[int, int, int], float]:
        """Attention of a number of prefill rows, each with so many new and so many cached tokens.

        The cached number, the third, may be 0.
        """
        ...

    def decode_timer(self, attention: Attention) -> Callable[[int, int], float]:
        """Attention of a number of decode rows, each attending to so many tokens."""
        ...
