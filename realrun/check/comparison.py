"""The result of one comparison of logits."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class LogitComparison:
    """The difference of two computations of the same logits.

    Attributes:
        name: what was compared, as `one = other`.
        error: largest absolute difference; None if the comparison was not made.
        tolerance: largest allowed difference.
        note: the size of the comparison, or why it was not made.
    """

    name: str
    error: float | None
    tolerance: float
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether the error is within tolerance, or there is none. NaN is never within it."""
        return self.error is None or self.error <= self.tolerance


def max_error(first: Tensor, second: Tensor) -> float:
    """Largest absolute difference of two tensors of one shape, in float64; NaN if any is NaN."""
    return float((first.double() - second.double()).abs().max())
