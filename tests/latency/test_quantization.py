"""Number formats of checkpoints, from their `quantization_config`."""

import pytest

from sim.core.errors import InputError
from sim.latency.architectures.config_json import WeightFormats
from sim.latency.architectures.model_key import model_table
from sim.latency.architectures.read import shape_of_config

Q, GATE, EXPERT = "self_attn.q_proj", "mlp.gate_proj", "mlp.experts.0.gate_proj"
INT4 = {"num_bits": 4, "type": "int", "group_size": 32, "symmetric": True}
FP8_GROUP = {"weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8}}


def formats(**settings):
    return WeightFormats({"quantization_config": settings}, "config.json")


def compressed(group, **settings):
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **settings}


@pytest.mark.parametrize(
    ("settings", "name", "bits", "arithmetic"),
    [
        ({"quant_method": "fp8"}, "fp8", 8, "fp8"),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            "fp8_block", 8 + 32 / 128**2, "fp8",
        ),
        ({"quant_method": "mxfp4"}, "mxfp4", 4.25, "bf16"),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
            "int4", 4 + 20 / 128, "bf16",
        ),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True},
            "int4", 4 + 16 / 128, "bf16",
        ),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8", 8, "bf16"),
        (compressed({"weights": INT4, "input_activations": None}), "int4", 4.5, "bf16"),
        (compressed(FP8_GROUP), "fp8", 8, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 4.5, "fp4"),
        ({"quant_algo": "FP8"}, "fp8", 8, "fp8"),
    ],
)  # fmt: skip
def test_quantization_methods_and_their_bits(settings, name, bits, arithmetic):
    """Scales and zero points count; formats of weights alone are multiplied in 16 bits."""
    found = formats(**settings).of(f"model.layers.3.{Q}")
    assert (found.name, found.bits, found.arithmetic) == (name, bits, arithmetic)


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("modules_to_not_convert", ["model.layers.0.self_attn", "model.layers.1.self_attn"]),
        ("modules_to_not_convert", ["self_attn"]),
        ("exclude_modules", ["model.layers.*.self_attn"]),
        ("exclude_modules", ["model.layers.0.self_attn*", "model.layers.1.self_attn.q_proj"]),
        ("ignore", ["re:.*self_attn.*"]),
        ("ignore", [r"re:.*\.q_proj"]),
        ("ignored_layers", ["model.language_model.layers.*.self_attn"]),
    ],
)
def test_quantization_spares_modules(key, names):
    """By name, by pattern, by regular expression; output heads and routers always."""
    found = formats(quant_method="fp8", **{key: names})
    spared = ["model.layers.0." + Q, "model.layers.1." + Q, "lm_head", "model.layers.0.mlp.gate"]
    assert [found.of(module).name for module in spared] == ["bfloat16"] * 4
    assert found.of("model.layers.10." + GATE).name == "fp8"


@pytest.mark.parametrize(
    "expression", ["(.*.*)*(.*)*(.*)*y!$", "(a|aa)+(b|bb)+$", "(" * 200 + ".*" + ")*" * 200]
)
def test_expressions_of_a_file_take_linear_time(expression):
    """Backtracking would take longer than anybody waits."""
    found = formats(quant_method="fp8", ignore=[f"re:{expression}"])
    module = "model.layers.0." + "ab" * 5000
    assert found.of(module).name in {"fp8", "bfloat16"}


def test_quantization_of_each_module_alone():
    """What a mixed checkpoint does not list is not quantised."""
    found = formats(
        quant_algo="MIXED_PRECISION",
        quantized_layers={
            "model.language_model.layers.0.mlp.experts": {"quant_algo": "NVFP4"},
            "model.language_model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        },
    )
    modules = [EXPERT, Q, "self_attn.k_proj"]
    names = [found.of(f"model.layers.0.{module}").name for module in modules]
    assert names == ["nvfp4", "fp8", "bfloat16"]


@pytest.mark.parametrize(
    ("settings", "num_bytes"),
    [
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, 1),
        ({"quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, 1),
        ({"quant_algo": "FP8"}, 2),
    ],
)
def test_quantization_of_the_kv_cache(settings, num_bytes):
    """As the checkpoint says."""
    assert formats(**settings).kv_element_bytes == num_bytes


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"bits": 4}, "quant_method: unknown quantisation 'None'"),
        ({"quant_method": "gguf"}, r"quant_method: unknown quantisation 'gguf' \(.*known: awq"),
        ({"quant_method": "awq"}, "bits: must be 2, 3, 4 or 8, got None"),
        ({"quant_algo": "INT3"}, "quant_algo: unknown number format 'INT3'"),
        ({"quant_algo": ["FP8"]}, r"quant_algo: unknown number format \"\['FP8'\]\""),
        ({"quant_algo": "MIXED_PRECISION"}, "quantized_layers: must be a mapping"),
        (compressed({}), "config_groups.group_0.weights: must be a mapping"),
        ({"quant_method": "compressed-tensors"}, "config_groups: must be a mapping"),
        ({"quant_method": "fp8", "weight_block_size": 128}, "weight_block_size: must be two"),
        ({"quant_method": "fp8", "ignore": "lm_head"}, "ignore: must be a list"),
        ({"quant_method": "fp8", "ignore": ["re:("]}, "ignore: not a regular expression"),
        ({"quant_method": "fp8", "ignore": ["re:(?!a)b"]}, "ignore: not a .* RE2 takes: invalid"),
        ({"quant_method": "fp8", "ignore": ["re:" + "(" * 5000]}, "ignore: a regular .* 1000 char"),
        ({"quant_method": "gptq", "bits": 4, "group_size": "x"}, "group_size: must be"),
    ],
)
def test_quantization_that_is_unknown_is_one_line(settings, reason):
    """It names the file and the key."""
    with pytest.raises(InputError, match=rf"^config\.json: quantization_config\.{reason}"):
        formats(**settings)


def test_quantization_of_weights_alone_leaves_the_number_of_parameters():
    """A 4-bit checkpoint is a little more than a quarter as large."""
    base = model_table()["llama-3.1-70b"]
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    plain, short = (
        shape_of_config("m", {**base, **changes}, where="m")
        for changes in ({}, {"quantization_config": awq})
    )
    assert short.num_parameters == plain.num_parameters
    # Embedding and output head keep 16 bits.
    vocab_bytes = 2 * 2 * plain.vocab_size * plain.hidden_size
    share = (short.weight_bytes - vocab_bytes) / (plain.weight_bytes - vocab_bytes)
    assert share == pytest.approx((4 + 20 / 128) / 16, rel=1e-3)
