"""Which architectures there are, and in what they differ from Llama's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sim.latency.architectures.parts import (
    AttentionParts,
    Heads,
    MlpParts,
    dense,
    experts,
    grouped,
    has_experts,
    head_dim,
    latent,
    linear,
)
from sim.latency.architectures.values import ConfigValues

# The windows of a model that names no layers, by architecture: every layer but each n-th.
_FULL_EVERY = {"gemma2": 2, "gpt_oss": 2, "gemma3": 6, "gemma3_text": 6, "llama4_text": 4}
_WINDOWED = ("sliding_attention", "chunked_attention")
_WINDOW_KEYS = {"llama4_text": "attention_chunk_size"}
# The architectures whose windows are chunks.
CHUNKED = ("llama4_text",)


def windows(values: ConfigValues, num_layers: int) -> list[int | None]:
    """For each layer, how many tokens a query sees; None: all."""
    key = _WINDOW_KEYS.get(values.model_type, "sliding_window")
    if values.value(key) is None or not values.flag("use_sliding_window", default=True):
        return [None] * num_layers
    window = values.count(key)
    if window >= values.count("max_position_embeddings", default=1 << 40):
        return [None] * num_layers
    return [window if windowed else None for windowed in _windowed(values, num_layers)]


def _windowed(values: ConfigValues, num_layers: int) -> list[bool]:
    kinds = values.names("layer_types", num_layers)
    if kinds is not None:
        return [kind in _WINDOWED for kind in kinds]
    if values.value("use_sliding_window"):
        # Qwen: the first layers see everything.
        first = values.number("max_window_layers")
        return [layer >= first for layer in range(num_layers)]
    # Without any such rule, every layer has a window.
    every = values.count(
        "sliding_window_pattern", default=_FULL_EVERY.get(values.model_type, 1 << 40)
    )
    return [(layer + 1) % every != 0 for layer in range(num_layers)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitectureFamily:
    """Architectures of one kind. The defaults are Llama's.

    Attributes:
        latent: attention is latent.
        qkv_bias: queries, keys and values have biases; None: if `attention_bias` says so.
        out_bias: the output of attention has one if `attention_bias` says so.
        head_norms: norms of queries and keys, as `parts.grouped` takes them.
        head_dim: width of a head if the configuration does not say.
        kv_heads_default: without a number of KV heads, there are as many as query heads.
        gated: attention has an output gate.
        sinks: attention has a parameter for each head.
        num_norms: norms of a layer, each as wide as the residual stream.
        tied: the output head is the embedding if the configuration does not say.
        dense_size: key of the width of an MLP in a model whose experts have `intermediate_size`.
        experts: makes the experts of a layer; None: there are none.
    """

    latent: bool = False
    qkv_bias: bool | None = None
    out_bias: bool = True
    head_norms: str = ""
    head_dim: int | None = None
    kv_heads_default: bool = False
    gated: bool = False
    sinks: bool = False
    num_norms: int = 2
    tied: bool = False
    dense_size: str = "intermediate_size"
    experts: Callable[[ConfigValues, int], MlpParts] | None = None


def _routed(**options: bool | str) -> Callable[[ConfigValues, int], MlpParts]:
    return lambda values, hidden: experts(values, hidden, **options)  # type: ignore[arg-type]


_LLAMA = ArchitectureFamily()
_QWEN3 = ArchitectureFamily(head_norms="head", head_dim=128)
_QWEN_NEXT = ArchitectureFamily(head_norms="head", gated=True)
_GEMMA = ArchitectureFamily(tied=True)
_DEEPSEEK = ArchitectureFamily(latent=True, experts=_routed(router_bias=True))

FAMILIES: Mapping[str, ArchitectureFamily] = {
    "llama": replace(_LLAMA, kv_heads_default=True),
    "mistral": _LLAMA,
    "ministral3": _LLAMA,
    "phi3": _LLAMA,
    "seed_oss": replace(_LLAMA, out_bias=False),
    "mimo": replace(_LLAMA, out_bias=False),
    "qwen2": ArchitectureFamily(qkv_bias=True),
    "qwen3": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "gemma": _GEMMA,
    "gemma2": replace(_GEMMA, num_norms=4),
    "gemma3": replace(_GEMMA, num_norms=4, head_norms="head"),
    "gemma3_text": replace(_GEMMA, num_norms=4, head_norms="head"),
    "mixtral": replace(_LLAMA, experts=_routed(module="block_sparse_moe.experts.0.w1")),
    "qwen2_moe": ArchitectureFamily(qkv_bias=True, experts=_routed(shared_gate=True)),
    "qwen3_moe": replace(_QWEN3, experts=_routed()),
    "qwen3_vl_moe_text": replace(_QWEN3, experts=_routed()),
    "qwen3_next": replace(_QWEN_NEXT, experts=_routed(shared_gate=True)),
    "qwen3_5_text": _QWEN_NEXT,
    "qwen3_5_moe_text": replace(_QWEN_NEXT, experts=_routed(shared_gate=True)),
    "glm4_moe": ArchitectureFamily(out_bias=False, experts=_routed(router_bias=True)),
    "gpt_oss": ArchitectureFamily(sinks=True, experts=_routed(router_bias=True, biases=True)),
    "minimax_m2": ArchitectureFamily(
        head_norms="row",
        experts=_routed(module="block_sparse_moe.experts.0.w1", router_bias=True),
    ),
    "llama4_text": ArchitectureFamily(
        dense_size="intermediate_size_mlp", experts=_routed(shared_like_routed=True)
    ),
    "deepseek_v2": replace(_DEEPSEEK, experts=_routed()),
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm4_moe_lite": _DEEPSEEK,
    "glm_moe_dsa": _DEEPSEEK,
}


def attention_of(
    family: ArchitectureFamily, values: ConfigValues, layer: int, kind: str, window: int | None
) -> AttentionParts:
    """The attention of a layer; `kind` is its word in `layer_types`."""
    if kind == "linear_attention":
        return linear(values)
    if family.latent:
        return latent(values, layer)
    hidden_size, num_heads = values.count("hidden_size"), values.count("num_attention_heads")
    has_bias = values.flag("attention_bias", default=False)
    width = head_dim(values, hidden_size, num_heads, family.head_dim)
    parts = grouped(
        Heads(hidden_size, num_heads, num_kv_heads(family, values), width),
        window=window,
        gated=family.gated,
        qkv_bias=has_bias if family.qkv_bias is None else family.qkv_bias,
        out_bias=has_bias and family.out_bias,
        head_norms=family.head_norms or ("head" if values.value("use_qk_norm") else ""),
        sinks=family.sinks,
    )
    if window is not None and values.model_type in CHUNKED:
        parts.attention = replace(parts.attention, is_chunked=True)
    return parts


def num_kv_heads(family: ArchitectureFamily, values: ConfigValues) -> int:
    """Heads of keys and values, of which each serves equally many query heads."""
    num_heads = values.count("num_attention_heads")
    # Only Llama files from before grouped-query attention lack this key.
    found = values.count(
        "num_key_value_heads", default=num_heads if family.kv_heads_default else None
    )
    if num_heads % found:
        reason = f"{num_heads} heads are not divisible by {found} KV heads"
        raise values.error("num_key_value_heads", reason)
    return found


def mlp_of(family: ArchitectureFamily, values: ConfigValues, layer: int) -> MlpParts:
    """The MLP of a layer, or its experts."""
    hidden_size = values.count("hidden_size")
    if family.experts is not None and has_experts(values, layer):
        return family.experts(values, hidden_size)
    bias = values.flag("mlp_bias", default=False)
    return dense(hidden_size, values.count(family.dense_size), bias=bias)
