"""Number formats of weights: how many bits one takes, and in which arithmetic it is multiplied."""

from typing import Literal, NamedTuple

Arithmetic = Literal["bf16", "fp8", "fp4"]


class NumberFormat(NamedTuple):
    """How the weights of some matrices are stored.

    Attributes:
        name: its name in messages.
        bits: of a weight, with its share of the scales.
        arithmetic: of the matrix product. Formats of weights alone are multiplied in 16 bits.
    """

    name: str
    bits: float
    arithmetic: Arithmetic


BFLOAT16 = NumberFormat("bfloat16", 16, "bf16")
FP8 = NumberFormat("fp8", 8, "fp8")
# One scale of 8 bits for 16 weights.
NVFP4 = NumberFormat("nvfp4", 4.5, "fp4")
# One scale of 8 bits for 32 weights.
MXFP8 = NumberFormat("mxfp8", 8.25, "fp8")
MXFP4 = NumberFormat("mxfp4", 4.25, "bf16")


def fp8_blocks(num_weights: int) -> NumberFormat:
    """Eight bits a weight, and a scale of 32 bits for each block of `num_weights` weights."""
    return NumberFormat("fp8_block", 8 + 32 / num_weights, "fp8")


def integers(bits: int, group_size: int | None, *, zero_points: bool) -> NumberFormat:
    """Weights alone as integers, in groups with a scale of 16 bits and perhaps a zero point.

    Without a `group_size`, a group is a whole column, whose scale is negligible. A zero point has
    as many bits as a weight.
    """
    of_group = 16 + (bits if zero_points else 0)
    added = 0.0 if group_size is None else of_group / group_size
    return NumberFormat(f"int{bits}", bits + added, "bf16")
