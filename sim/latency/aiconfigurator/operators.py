"""What one step of a model runs on each device, operator by operator.

This module knows sizes only; an `OperatorDatabase` knows how long operators take. A width is the
number of a token's activations, which have 16 bits each.
"""

from typing import NamedTuple

from sim.core.errors import InputError
from sim.latency.shapes import ModelShape

_KEY = ("latency", "tp")


class MatrixProduct(NamedTuple):
    """`repeats` products of each token's `width_in` activations with a weight matrix."""

    name: str
    repeats: int
    width_out: int
    width_in: int


class Elementwise(NamedTuple):
    """`repeats` passes that read and write activations and compute little, such as norms."""

    name: str
    repeats: int
    width_read: int
    width_written: int


class EmbeddingLookup(NamedTuple):
    """A read of each token's row of the embedding table."""

    name: str
    num_rows: int
    width: int


class AllReduceOperator(NamedTuple):
    """`repeats` sums over `num_devices` devices of every token's activations."""

    name: str
    repeats: int
    width: int
    num_devices: int


class AttentionOperator(NamedTuple):
    """`repeats` attention calls for one device's share of the heads."""

    repeats: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


TokenOperator = MatrixProduct | Elementwise | EmbeddingLookup | AllReduceOperator


class StepOperators(NamedTuple):
    """The operators of a step on one device.

    Attributes:
        tokens: run on every new token of the step, prefill and decode rows together.
        head: run on every row that gets logits.
        attention: run once for the prefill rows and once for the decode rows.
    """

    tokens: tuple[TokenOperator, ...]
    head: tuple[TokenOperator, ...]
    attention: AttentionOperator


def step_operators(model: ModelShape, tp: int) -> StepOperators:
    """Split a model over `tp` devices: heads, inner width and vocabulary.

    If there are fewer KV heads than devices, several devices hold the same one.

    Raises:
        InputError: the heads or the inner width are not divisible by `tp`.
    """
    _check_divides(model, tp)
    layers, hidden = model.num_layers, model.hidden_size
    num_heads, num_kv_heads = model.num_heads // tp, -(-model.num_kv_heads // tp)
    attention_width = num_heads * model.head_dim
    qkv_width = attention_width + 2 * num_kv_heads * model.head_dim
    inner_width = model.intermediate_size // tp
    up_width = 2 * inner_width if model.gated_mlp else inner_width
    tokens: list[TokenOperator] = [
        EmbeddingLookup("embedding", model.vocab_size // tp, hidden),
        MatrixProduct("query, key and value", layers, qkv_width, hidden),
        MatrixProduct("attention output", layers, hidden, attention_width),
        MatrixProduct("MLP up", layers, up_width, hidden),
        MatrixProduct("MLP down", layers, hidden, inner_width),
        # Two norms a layer, each fused with the residual sum: both are read and written.
        Elementwise("norms", 2 * layers, 2 * hidden, 2 * hidden),
        Elementwise("activation", layers, up_width, inner_width),
    ]
    if tp > 1:
        # After the attention and the MLP of every layer, and after the split embedding.
        tokens.append(AllReduceOperator("all-reduce", 2 * layers + 1, hidden, tp))
    return StepOperators(
        tokens=tuple(tokens),
        head=(MatrixProduct("output head", 1, model.vocab_size // tp, hidden),),
        attention=AttentionOperator(layers, num_heads, num_kv_heads, model.head_dim),
    )


def _check_divides(model: ModelShape, tp: int) -> None:
    for what, size in (("heads", model.num_heads), ("MLP units", model.intermediate_size)):
        if size % tp:
            raise InputError(f"{size} {what} of {model.name} are not divisible by {tp}", key=_KEY)
    if model.num_kv_heads % tp and tp % model.num_kv_heads:
        raise InputError(
            f"{model.num_kv_heads} KV heads of {model.name} can neither be split nor repeated"
            f" over {tp}",
            key=_KEY,
        )
