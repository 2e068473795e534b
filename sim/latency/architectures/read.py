"""From a config.json to a `ModelShape`: the architectures, and in what they differ from Llama's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sim.core.errors import InputError, unknown_name
from sim.latency.architectures.config_json import Config, ConfigValues, WeightFormats
from sim.latency.architectures.parts import (
    AttentionParts,
    Heads,
    Matrix,
    MlpParts,
    dense,
    experts,
    grouped,
    has_experts,
    head_dim,
    latent,
    linear,
)
from sim.latency.hardware import NumberFormat
from sim.latency.shapes import Experts, Layer, Matrices, ModelShape

# By architecture, where a configuration does not list its layers: each n-th layer has no window.
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
        qkv_bias: queries, keys and values have biases; None: if `attention_bias` says so.
        out_bias: the output of attention has one if `attention_bias` says so.
        head_norms: norms of queries and keys, as `parts.grouped` takes them.
        head_dim: width of a head if the configuration does not say.
        kv_heads_default: without a number of KV heads, there are as many as query heads.
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
    hidden_size = values.count("hidden_size")
    if family.experts is not None and has_experts(values, layer):
        return family.experts(values, hidden_size)
    bias = values.flag("mlp_bias", default=False)
    return dense(hidden_size, values.count(family.dense_size), bias=bias)


# Far more than any model has; with it every duration fits 64-bit nanoseconds.
_MAX_PARAMETERS = 10**15
_MAX_LAYERS = 10_000
_GPT2 = "gpt2"


def is_described(config: Config) -> bool:
    """Whether there is a `ModelShape` for the architecture of a configuration."""
    return ConfigValues(config, "").model_type in (*FAMILIES, _GPT2)


def shape_of_config(name: str, config: Config, *, where: str) -> ModelShape:
    """The shape that a config.json describes; error messages begin with `where`."""
    values = ConfigValues(config, where)
    formats = WeightFormats(config, where)
    if values.model_type == _GPT2:
        shape = _gpt2(name, values, formats)
    elif values.model_type in FAMILIES:
        shape = _read(name, values, formats)
    else:
        reason = unknown_name("architecture", values.model_type, (*FAMILIES, _GPT2))
        raise InputError(f"{where}: model_type: {reason}")
    if shape.num_parameters > _MAX_PARAMETERS:
        raise InputError(f"{where}: {shape.num_parameters} parameters are more than any model has")
    return shape


def _read(name: str, values: ConfigValues, formats: WeightFormats) -> ModelShape:
    family = FAMILIES[values.model_type]
    hidden_size, vocab_size = values.count("hidden_size"), values.count("vocab_size")
    layers = _Layers(formats)
    num_layers = _num_layers(values, "num_hidden_layers")
    kinds = values.names("layer_types", num_layers) or _kinds(values, num_layers)
    for layer, window in enumerate(windows(values, num_layers)):
        attention = attention_of(family, values, layer, kinds[layer], window)
        attention.num_other += family.num_norms * hidden_size
        layers.add(attention, mlp_of(family, values, layer))
    num_heads = values.count("num_attention_heads")
    return ModelShape(
        name=name,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads(family, values),
        head_dim=_head_dim(family, values, hidden_size, num_heads),
        intermediate_size=values.count("intermediate_size", "moe_intermediate_size"),
        vocab_size=vocab_size,
        tie_word_embeddings=values.flag("tie_word_embeddings", default=family.tied),
        layers=layers.grouped(),
        head=Matrices(vocab_size * hidden_size, formats.of("lm_head")),
        num_other_parameters=layers.num_other + hidden_size,
        kv_element_bytes=formats.kv_element_bytes,
        model_type=values.model_type,
    )


def _num_layers(values: ConfigValues, key: str) -> int:
    num_layers = values.count(key)
    if num_layers > _MAX_LAYERS:
        raise values.error(key, f"{num_layers} layers are more than any model has")
    return num_layers


def _kinds(values: ConfigValues, num_layers: int) -> list[str]:
    """What `layer_types` would say, for configurations without it."""
    if values.value("linear_num_value_heads") is None:
        return ["full_attention"] * num_layers
    every = values.count("full_attention_interval", default=4)
    return [
        "linear_attention" if (layer + 1) % every else "full_attention"
        for layer in range(num_layers)
    ]


def _head_dim(
    family: ArchitectureFamily, values: ConfigValues, hidden_size: int, num_heads: int
) -> int:
    if family.latent:
        return values.count("qk_nope_head_dim") + values.count("qk_rope_head_dim")
    return head_dim(values, hidden_size, num_heads, family.head_dim)


class _Layers:
    """Collects layers, and puts equal ones together."""

    def __init__(self, formats: WeightFormats) -> None:
        self._formats = formats
        self._counts: dict[Layer, int] = {}
        self._num_layers = 0
        self.num_other = 0

    def add(self, attention: AttentionParts, mlp: MlpParts) -> None:
        prefix = f"model.layers.{self._num_layers}."
        experts = None
        if mlp.expert is not None:
            expert = self._matrices(prefix, [mlp.expert])[0]
            experts = Experts(mlp.num_experts, mlp.num_active, expert)
        parts = self._matrices(prefix, [*attention.parts, *mlp.parts])
        layer = Layer(1, attention.attention, parts, experts)
        self._counts[layer] = self._counts.get(layer, 0) + 1
        self._num_layers += 1
        self.num_other += attention.num_other + mlp.num_other

    def _matrices(self, prefix: str, parts: list[Matrix]) -> tuple[Matrices, ...]:
        """One entry for each number format."""
        sizes: dict[NumberFormat, int] = {}
        for part in parts:
            stored_as = self._formats.of(prefix + part.module)
            sizes[stored_as] = sizes.get(stored_as, 0) + part.num_parameters
        return tuple(Matrices(num, stored_as) for stored_as, num in sizes.items())

    def grouped(self) -> tuple[Layer, ...]:
        return tuple(
            Layer(count, layer.attention, layer.matrices, layer.experts)
            for layer, count in self._counts.items()
        )


def _gpt2(name: str, values: ConfigValues, formats: WeightFormats) -> ModelShape:
    num_layers = _num_layers(values, "n_layer")
    hidden_size, num_heads = values.count("n_embd"), values.count("n_head")
    vocab_size = values.count("vocab_size")
    intermediate_size = values.count("n_inner", default=4 * hidden_size)
    width = head_dim(values, hidden_size, num_heads, None)
    heads = Heads(hidden_size, num_heads, num_heads, width)
    layers = _Layers(formats)
    for _ in range(num_layers):
        attention = grouped(heads, qkv_bias=True, out_bias=True)
        # Two norms with biases; two matrices, each with a bias.
        num_other = 4 * hidden_size + intermediate_size + hidden_size
        up_and_down = Matrix("mlp.c_fc", 2 * hidden_size * intermediate_size)
        layers.add(attention, MlpParts([up_and_down], num_other=num_other))
    positions = values.count("n_positions") * hidden_size
    return ModelShape(
        name=name,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=width,
        intermediate_size=intermediate_size,
        vocab_size=vocab_size,
        tie_word_embeddings=values.flag("tie_word_embeddings", default=True),
        layers=layers.grouped(),
        head=Matrices(vocab_size * hidden_size, formats.of("lm_head")),
        num_other_parameters=layers.num_other + positions + 2 * hidden_size,
        kv_element_bytes=formats.kv_element_bytes,
    )
