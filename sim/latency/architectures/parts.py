"""What a layer consists of, before the number format of each matrix is known."""

from dataclasses import dataclass, field
from typing import NamedTuple

from sim.latency.shapes import Attention


class Part(NamedTuple):
    """A matrix of a layer.

    Attributes:
        module: its name in the checkpoint, without the prefix of the layer.
        num_parameters: its size.
    """

    module: str
    num_parameters: int


@dataclass(slots=True)
class AttentionParts:
    """The attention of a layer: what it keeps, its matrices, and its other parameters."""

    attention: Attention
    parts: list[Part]
    num_other: int = 0


@dataclass(slots=True)
class MlpParts:
    """What follows the attention: matrices for every token, and perhaps experts.

    Attributes:
        parts: matrices for every token.
        expert: the matrices of one expert together.
        num_experts: experts of the layer; 0: none.
        num_active: experts that a token uses.
        num_other: other parameters.
    """

    parts: list[Part] = field(default_factory=list)
    expert: Part | None = None
    num_experts: int = 0
    num_active: int = 0
    num_other: int = 0
