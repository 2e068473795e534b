"""From a config.json to a `ModelShape`."""

from sim.core.errors import InputError
from sim.core.messages import unknown_name
from sim.latency.architectures.families import (
    FAMILIES,
    ArchitectureFamily,
    attention_of,
    mlp_of,
    num_kv_heads,
    windows,
)
from sim.latency.architectures.parts import (
    AttentionParts,
    Heads,
    Matrix,
    MlpParts,
    grouped,
    head_dim,
)
from sim.latency.architectures.quantization import WeightFormats
from sim.latency.architectures.values import Config, ConfigValues
from sim.latency.hardware import NumberFormat
from sim.latency.shapes import Experts, Layer, Matrices, ModelShape

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
