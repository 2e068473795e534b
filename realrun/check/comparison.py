"""The outcome of one comparison."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two computations of the same logits, and how far apart they are.

    Attributes:
        name: what was compared.
        error: largest absolute difference; None if the comparison was not made.
        tolerance: largest that is allowed.
        note: what was compared with what sizes, or why it was not made.
    """

    name: str
    error: float | None
    tolerance: float
    note: str = ""

    @property
    def ok(self) -> bool:
        """Within tolerance, or not made. A NaN is not within any tolerance."""
        return self.error is None or self.error <= self.tolerance


def max_error(first: Tensor, second: Tensor) -> float:
    """Largest absolute difference of two tensors of one shape, in float64; NaN if one has any."""
    return float((first.double() - second.double()).abs().max())
