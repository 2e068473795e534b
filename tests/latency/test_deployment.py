"""What kind aiconfigurator asks of its package, from a scenario's model and `latency` section."""

import json

import pytest

from sim.core.errors import InputError
from sim.latency.aiconfigurator.deployment import deployment_of
from sim.latency.architectures.model_key import model_table
from sim.latency.config import AiconfiguratorLatencyConfig

MISTRAL = "mistralai/Mistral-Nemo-Instruct-2407"
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def deployment(model, folder, known=(), **quantization):
    section = AiconfiguratorLatencyConfig(
        kind="aiconfigurator", system="h200_sxm", quantization=quantization
    )
    return deployment_of(section, model, folder, frozenset(known))


def write(folder, **config):
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


@pytest.mark.parametrize(
    ("model", "known", "given"),
    [
        ("Qwen/Qwen3-8B", ["Qwen/Qwen3-8B"], "Qwen/Qwen3-8B"),
        # The package knows a model of the same sizes.
        ("deepseek-ai/DeepSeek-R1-0528", ["deepseek-ai/DeepSeek-V3"], "deepseek-ai/DeepSeek-V3"),
    ],
)
def test_deployment_of_a_known_id_is_given_by_id(model, known, given, tmp_path):
    """The package has its configuration."""
    found = deployment(model, tmp_path, known)
    assert (found.model, found.config) == (given, None)


def test_deployment_of_other_models_has_their_configuration(tmp_path):
    """From our table or from a file; what is like Llama is Llama for the package."""
    write(tmp_path, **model_table()[MISTRAL], architectures=["MistralForCausalLM"])
    for model in (MISTRAL, str(tmp_path)):
        config = json.loads(deployment(model, tmp_path, [model] if model != MISTRAL else ()).config)
        assert config["architectures"] == ["LlamaForCausalLM"]
        assert (config["num_hidden_layers"], config["head_dim"]) == (40, 128)
        assert config["max_position_embeddings"] > 0


def test_deployment_takes_the_text_part_of_a_model_of_text_and_images(tmp_path):
    """Its class is not one of the package's."""
    text = model_table()[MISTRAL]
    write(tmp_path, model_type="mistral3", architectures=["Mistral3"], text_config=dict(text))
    config = json.loads(deployment(str(tmp_path), tmp_path).config)
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["num_hidden_layers"] == 40


@pytest.mark.parametrize(
    ("kv", "quantization", "wanted"),
    [
        ({}, {}, "bfloat16"),
        ({"kv_cache_scheme": {"num_bits": 8}}, {}, "fp8"),
        ({"kv_cache_scheme": {"num_bits": 8}}, {"kv_cache": "bfloat16"}, "bfloat16"),
    ],
)
def test_deployment_keeps_kv_in_16_bits_unless_told(kv, quantization, wanted, tmp_path):
    """The engines do not quantise the cache because the weights are quantised."""
    write(tmp_path, **model_table()["llama-3.1-8b"], quantization_config=FP8 | kv)
    found = deployment(str(tmp_path), tmp_path, **quantization)
    assert dict(found.quantization) == {"kv_cache": wanted}


def test_deployment_without_operators_is_one_line(tmp_path):
    """Architectures of our table that the package lacks."""
    with pytest.raises(InputError, match="aiconfigurator-core has no operators of a gemma2"):
        deployment("google/gemma-2-9b-it", tmp_path)
