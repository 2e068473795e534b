"""What a layer consists of, before the number format of each matrix is known."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sim.latency.architectures.config_json import ConfigValues
from sim.latency.shapes import Attention


class Matrix(NamedTuple):
    """A matrix of a layer.

    Attributes:
        module: its name in the checkpoint, without the prefix of the layer.
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
        expert: the matrices of one expert together.
        num_experts: experts of the layer; 0: none.
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
    """Experts of which each token uses a few; `module` is the name of an expert's matrix.

    The router has a bias for each expert (`router_bias`), the three matrices of each expert have
    `biases`, a gate weighs what the shared expert adds (`shared_gate`), and there is one shared
    expert as large as a routed one (`shared_like_routed`).
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


# Operations of a multiply and an add.
_MULTIPLY_ADD = 2
# The index of sparse attention keeps a key in 8 bits, with a scale of 32 bits for 128 elements.
_INDEX_BLOCK, _SCALE_BYTES = 128, 4
# The recurrence of linear attention is kept in 32 bits unless the configuration says otherwise, its
# convolution in 16 (SGLang 0.5.23: `mamba2_state_dtype` of configs/mamba_utils.py).
_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_DEFAULT_STATE, _CONVOLUTION_BYTES = "float32", 2


def head_dim(values: ConfigValues, hidden_size: int, num_heads: int, default: int | None) -> int:
    """The width of a head, which without a key or a default is an equal share of the width."""
    if default is not None or values.value("head_dim") is not None:
        return values.count("head_dim", default=default)
    if hidden_size % num_heads:
        reason = f"{hidden_size} hidden units are not divisible by {num_heads} heads"
        raise values.error("hidden_size", reason)
    return hidden_size // num_heads


class Heads(NamedTuple):
    """How wide attention is."""

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


def grouped(
    heads: Heads,
    *,
    window: int | None = None,
    gated: bool = False,
    qkv_bias: bool = False,
    out_bias: bool = False,
    head_norms: str = "",
    sinks: bool = False,
) -> AttentionParts:
    """Attention whose query heads share heads of keys and values.

    A query sees `window` tokens (None: all). If `gated`, the query projection makes a gate of the
    output, too. `head_norms` are those of queries and keys: `head` (one for each), `row` (over all
    heads), or none. With `sinks`, each query head has a parameter.
    """
    hidden_size, num_heads, num_kv_heads, head_dim = heads
    query, key = num_heads * head_dim, num_kv_heads * head_dim
    other = query + 2 * key if qkv_bias else 0
    other += hidden_size if out_bias else 0
    other += {"head": 2 * head_dim, "row": query + key}.get(head_norms, 0)
    pair_flops = 2 * _MULTIPLY_ADD * query
    return AttentionParts(
        Attention(
            num_kv_heads=num_kv_heads,
            kv_elements=2 * head_dim,
            pair_flops=pair_flops,
            decode_pair_flops=pair_flops,
            window=window,
        ),
        [
            Matrix("self_attn.q_proj", hidden_size * query * (2 if gated else 1)),
            Matrix("self_attn.k_proj", hidden_size * key),
            Matrix("self_attn.v_proj", hidden_size * key),
            Matrix("self_attn.o_proj", query * hidden_size),
        ],
        other + (num_heads if sinks else 0),
    )


def latent(values: ConfigValues, layer: int) -> AttentionParts:
    """Attention whose keys and values are computed from one short vector of each token (MLA)."""
    hidden_size, num_heads = values.count("hidden_size"), values.count("num_attention_heads")
    rank, rope = values.count("kv_lora_rank"), values.count("qk_rope_head_dim")
    nope, value = values.count("qk_nope_head_dim"), values.count("v_head_dim")
    query_rank = values.number("q_lora_rank")
    query = num_heads * (nope + rope)
    parts = [
        Matrix("self_attn.kv_a_proj_with_mqa", hidden_size * (rank + rope)),
        Matrix("self_attn.kv_b_proj", rank * num_heads * (nope + value)),
        Matrix("self_attn.o_proj", num_heads * value * hidden_size),
    ]
    if query_rank:
        parts.append(Matrix("self_attn.q_a_proj", hidden_size * query_rank))
        parts.append(Matrix("self_attn.q_b_proj", query_rank * query))
    else:
        parts.append(Matrix("self_attn.q_proj", hidden_size * query))
    # In decode rows queries and outputs are of the width of the kept vector.
    attention = AttentionParts(
        Attention(
            num_kv_heads=1,
            kv_elements=rank + rope,
            pair_flops=_MULTIPLY_ADD * num_heads * (nope + rope + value),
            decode_pair_flops=_MULTIPLY_ADD * num_heads * (2 * rank + rope),
        ),
        parts,
        query_rank + rank,
    )
    return attention if values.value("index_topk") is None else _indexed(values, layer, attention)


def _indexed(values: ConfigValues, layer: int, full: AttentionParts) -> AttentionParts:
    """Latent attention to the keys that an index selects (DSA).

    With a cache of 8 bits, the rotated part of a token keeps 16 bits, and each 128 elements of the
    rest have a scale (SGLang `calculate_mla_kv_cache_dim`, vLLM `fp8_ds_mla`).
    """
    width, num_heads = values.count("index_head_dim"), values.count("index_n_heads")
    rank, rope = values.count("kv_lora_rank"), values.count("qk_rope_head_dim")
    sparse = replace(
        full.attention,
        top_keys=values.count("index_topk"),
        index_bytes=width + width // _INDEX_BLOCK * _SCALE_BYTES,
        index_pair_flops=_MULTIPLY_ADD * num_heads * width,
        quantised_bytes=rank + rank // _INDEX_BLOCK * _SCALE_BYTES + 2 * rope,
    )
    kinds = values.value("indexer_types")
    if isinstance(kinds, list) and layer < len(kinds) and kinds[layer] == "shared":
        # It takes what the index of an earlier layer selected. Both engines keep one all the same.
        return AttentionParts(sparse, full.parts, full.num_other)
    hidden_size = values.count("hidden_size")
    parts = [
        Matrix("self_attn.indexer.wq_b", values.count("q_lora_rank") * num_heads * width),
        Matrix("self_attn.indexer.wk", hidden_size * width),
        Matrix("self_attn.indexer.weights_proj", hidden_size * num_heads),
    ]
    return AttentionParts(sparse, [*full.parts, *parts], full.num_other + 2 * width)


def linear(values: ConfigValues) -> AttentionParts:
    """Attention with a state of fixed size instead of keys and values (gated delta net)."""
    hidden_size = values.count("hidden_size")
    num_keys, num_values = (
        values.count("linear_num_key_heads"),
        values.count("linear_num_value_heads"),
    )
    key_dim, value_dim = values.count("linear_key_head_dim"), values.count("linear_value_head_dim")
    kernel = values.count("linear_conv_kernel_dim")
    key, value = num_keys * key_dim, num_values * value_dim
    mixed = 2 * key + value
    state = num_values * key_dim * value_dim
    return AttentionParts(
        Attention(
            state_elements=state,
            state_element_bytes=_STATE_BYTES.get(
                str(values.value("mamba_ssm_dtype")), _STATE_BYTES[_DEFAULT_STATE]
            ),
            conv_state_bytes=mixed * (kernel - 1) * _CONVOLUTION_BYTES,
            state_heads=num_keys,
            # Three products with the state: with the key, to update it, and with the query.
            state_token_flops=3 * _MULTIPLY_ADD * state,
        ),
        [
            Matrix("linear_attn.in_proj_qkv", hidden_size * mixed),
            Matrix("linear_attn.in_proj_z", hidden_size * value),
            Matrix("linear_attn.in_proj_ba", hidden_size * 2 * num_values),
            Matrix("linear_attn.out_proj", value * hidden_size),
        ],
        mixed * kernel + 2 * num_values + value_dim,
    )
