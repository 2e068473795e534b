"""What a roofline needs of a model: bytes and operations on one GPU, summed over equal layers."""

from typing import NamedTuple

from sim.latency.number_formats import NumberFormat
from sim.latency.shapes import Attention, Experts, ModelShape


class MatrixSum(NamedTuple):
    """Matrices of one number format."""

    format: NumberFormat
    num_bytes: int
    num_parameters: int


class ExpertSum(NamedTuple):
    """Equal experts of several layers: bytes and parameters of one expert in each."""

    experts: Experts
    num_bytes: int
    num_parameters: int


class AttentionSum(NamedTuple):
    """Equal attention of several layers."""

    attention: Attention
    num_layers: int
    kv_bytes: int


def matrix_sums(shape: ModelShape) -> list[MatrixSum]:
    """What every token is multiplied with, by number format."""
    found: dict[NumberFormat, list[int]] = {}
    for layer in shape.layers:
        for part in layer.matrices:
            sums = found.setdefault(part.format, [0, 0])
            sums[0] += layer.count * part.num_bytes(shape.dtype_bytes)
            sums[1] += layer.count * part.num_parameters
    return [MatrixSum(stored_as, *sums) for stored_as, sums in found.items()]


def expert_sums(shape: ModelShape) -> list[ExpertSum]:
    """The routed experts, by number and size."""
    counts: dict[Experts, int] = {}
    for layer in shape.layers:
        if layer.experts is not None:
            counts[layer.experts] = counts.get(layer.experts, 0) + layer.count
    return [
        ExpertSum(
            experts,
            count * experts.matrices.num_bytes(shape.dtype_bytes),
            count * experts.matrices.num_parameters,
        )
        for experts, count in counts.items()
    ]


def attention_sums(shape: ModelShape, tp: int) -> list[AttentionSum]:
    """What layers do with earlier tokens, and the bytes they keep of one on each of `tp` GPUs."""
    counts: dict[Attention, int] = {}
    for layer in shape.layers:
        counts[layer.attention] = counts.get(layer.attention, 0) + layer.count
    return [
        AttentionSum(attention, count, count * attention.kv_bytes(shape.kv_element_bytes, tp))
        for attention, count in counts.items()
    ]
