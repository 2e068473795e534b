"""What a layer consists of, before the number format of each matrix is known."""

from dataclasses import dataclass, field
from typing import NamedTuple

from sim.latency.architectures.values import ConfigValues
from sim.latency.shapes import Attention


class Matrix(NamedTuple):
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
    parts: list[Matrix]
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

    parts: list[Matrix] = field(default_factory=list)
    expert: Matrix | None = None
    num_experts: int = 0
    num_active: int = 0
    num_other: int = 0


# Gate, up and down.
_GATED = 3
_NUM_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_NUM_ACTIVE = ("num_experts_per_tok", "experts_per_token")


def dense(hidden_size: int, intermediate_size: int, *, bias: bool = False) -> MlpParts:
    """One MLP with a gate."""
    part = Matrix("mlp.gate_proj", _GATED * hidden_size * intermediate_size)
    return MlpParts([part], num_other=2 * intermediate_size + hidden_size if bias else 0)


def has_experts(values: ConfigValues, layer: int) -> bool:
    """Whether a layer of a model with experts has them."""
    only_dense = values.value("mlp_only_layers")
    if isinstance(only_dense, list) and layer in only_dense:
        return False
    kinds = values.value("mlp_layer_types")
    if isinstance(kinds, list) and layer < len(kinds):
        return bool(kinds[layer] == "sparse")
    every = values.count("decoder_sparse_step", "interleave_moe_layer_step", default=1)
    return layer >= values.number("first_k_dense_replace") and (layer + 1) % every == 0


def experts(
    values: ConfigValues,
    hidden_size: int,
    *,
    module: str = "mlp.experts.0.gate_proj",
    router_bias: bool = False,
    biases: bool = False,
    shared_gate: bool = False,
    shared_like_routed: bool = False,
) -> MlpParts:
    """Experts of which each token uses a few.

    Args:
        values: the configuration.
        hidden_size: width of the residual stream.
        module: the name of an expert's matrix.
        router_bias: the router has a bias for each expert.
        biases: the three matrices of each expert have biases.
        shared_gate: a gate weighs what the shared expert adds.
        shared_like_routed: there is one shared expert as large as a routed one.
    """
    num_experts = values.count(*_NUM_EXPERTS)
    width = values.count("moe_intermediate_size", "intermediate_size")
    shared = values.number("shared_expert_intermediate_size")
    shared += values.number("n_shared_experts") * width + (width if shared_like_routed else 0)
    found = MlpParts(
        [Matrix("mlp.gate", hidden_size * num_experts)],
        Matrix(module, _GATED * hidden_size * width),
        num_experts,
        values.count(*_NUM_ACTIVE),
        num_other=num_experts if router_bias else 0,
    )
    if found.num_active > num_experts:
        reason = f"{found.num_active} are more than the {num_experts} experts"
        raise values.error("num_experts_per_tok", reason)
    if shared:
        # Checkpoints call it one way or the other.
        name = "shared_experts" if values.value("n_shared_experts") else "shared_expert"
        found.parts.append(Matrix(f"mlp.{name}.gate_proj", _GATED * hidden_size * shared))
    if shared_gate:
        found.parts.append(Matrix("mlp.shared_expert_gate", hidden_size))
    if biases:
        found.num_other += num_experts * (2 * width + hidden_size)
    return found
