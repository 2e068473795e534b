"""Model shapes from the table and from config.json files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.latency.architectures.model_key import load_model_shape, model_table

QWEN2 = {
    "model_type": "qwen2",
    "num_hidden_layers": 24,
    "hidden_size": 896,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
}


def num_active_parameters(shape):
    """The parameters that one token uses: all but those of the other experts."""
    unused = (
        layer.count * (experts.num_experts - experts.num_active) * experts.matrices.num_parameters
        for layer in shape.layers
        if (experts := layer.experts) is not None
    )
    return shape.num_parameters - sum(unused)


def write_config(path, **changes):
    config = {key: value for key, value in (QWEN2 | changes).items() if value != "absent"}
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


# As published with the weights, of models that can be counted exactly.
PUBLISHED = {
    "gpt2": 124_439_808,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "Qwen/Qwen2.5-14B": 14_770_033_664,
    "Qwen/Qwen2.5-72B": 72_706_203_648,
    "Qwen/Qwen3-14B": 14_768_307_200,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "Qwen/Qwen3-235B-A22B": 235_093_634_560,
    "mistralai/Mistral-7B-Instruct-v0.3": 7_248_023_552,
    "mistralai/Mistral-Nemo-Instruct-2407": 12_247_782_400,
    "mistralai/Mistral-Small-24B-Instruct-2501": 23_572_403_200,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "deepseek-ai/DeepSeek-V2-Lite": 15_706_484_224,
    "openai/gpt-oss-20b": 20_914_757_184,
    "openai/gpt-oss-120b": 116_829_156_672,
    "google/gemma-2-9b-it": 9_241_705_984,
    "google/gemma-3-1b-it": 999_885_952,
    "microsoft/Phi-4-mini-instruct": 3_836_021_760,
}


@pytest.mark.parametrize(("name", "num_parameters"), PUBLISHED.items())
def test_shape_published_model_has_the_published_size(name, num_parameters):
    """Shapes give the published parameter counts exactly."""
    assert load_model_shape(name, Path()).num_parameters == num_parameters


@pytest.mark.parametrize(
    ("name", "billions", "active_billions"),
    [
        ("Qwen/Qwen3-30B-A3B", 30.5, 3.3),
        ("deepseek-ai/DeepSeek-V3", 671, 37),
        ("moonshotai/Kimi-K2-Instruct", 1_000, 32),
        ("mistralai/Mixtral-8x7B-v0.1", 46.7, 12.9),
        ("Qwen/Qwen3.5-397B-A17B", 397, 17),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 80, 3.9),
        ("zai-org/GLM-4.5-Air", 106, 13),
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", 400, 17),
    ],
)
def test_shape_active_parameters_are_about_what_is_published(name, billions, active_billions):
    """Publishers round, and leave out layers for speculation: within 4 %."""
    shape = load_model_shape(name, Path())
    assert shape.num_parameters == pytest.approx(billions * 1e9, rel=0.04)
    assert num_active_parameters(shape) == pytest.approx(active_billions * 1e9, rel=0.04)


@pytest.mark.parametrize(("name", "billions"), [("20b", 3.61), ("120b", 5.13)])
def test_shape_gpt_oss_uses_what_its_card_says(name, billions):
    """Its card leaves the embedding out: within 1 %."""
    shape = load_model_shape(f"openai/gpt-oss-{name}", Path())
    without = num_active_parameters(shape) - shape.vocab_size * shape.hidden_size
    assert without == pytest.approx(billions * 1e9, rel=0.01)


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        # As their cards give the size of the checkpoint.
        ("openai/gpt-oss-120b", 60.8),
        ("openai/gpt-oss-20b", 12.8),
    ],
)
def test_shape_quantised_weights_are_as_large_as_the_checkpoint(name, gib):
    """Experts in 4.25 bits, the rest in 16."""
    assert load_model_shape(name, Path()).weight_bytes / 2**30 == pytest.approx(gib, abs=0.05)


@pytest.mark.parametrize(
    ("name", "tp", "kv_bytes"),
    [
        # 2 x layers x KV heads x head width x 2 bytes; heads are copied where they run out.
        ("gpt2", 1, 36_864),
        ("qwen2.5-0.5b", 1, 12_288),
        ("llama-3.1-8b", 1, 131_072),
        ("llama-3.1-8b", 4, 32_768),
        ("llama-3.1-8b", 16, 16_384),
        ("tiny", 1, 2_048),
        # 61 layers x (512 + 64) x 2 bytes, on every GPU.
        ("deepseek-ai/DeepSeek-V3", 8, 70_272),
        # With an index of 128 + 4 bytes.
        ("deepseek-ai/DeepSeek-V3.2", 1, 61 * (1_152 + 132)),
        # The layers with windows count, too.
        ("openai/gpt-oss-120b", 1, 2 * 36 * 8 * 64 * 2),
        # 15 of 60 layers have KV, of 2 heads of width 256.
        ("Qwen/Qwen3.5-397B-A17B", 2, 15 * 256 * 2 * 2),
    ],
)
def test_shape_kv_bytes_are_those_of_the_engines(name, tp, kv_bytes):
    """As vLLM's `AttentionSpec` and SGLang's `get_cell_size_per_token` count them."""
    assert load_model_shape(name, Path()).kv_bytes_on_gpu(tp) == kv_bytes


@pytest.mark.parametrize(
    ("name", "kv_bytes"),
    [
        ("llama-3.1-8b", 65_536),
        ("deepseek-ai/DeepSeek-V3", 35_136),
        # 656 bytes: 512 in 8 bits with 4 scales, and 64 in 16 bits; and the index.
        ("deepseek-ai/DeepSeek-V3.2", 61 * (656 + 132)),
    ],
)
def test_shape_kv_in_eight_bits(name, kv_bytes):
    """Half as large, but for what keeps 16 bits."""
    shape = replace(load_model_shape(name, Path()), kv_element_bytes=1)
    assert shape.kv_bytes_per_token == kv_bytes


def test_shape_linear_attention_keeps_a_state():
    """45 layers x (64 x 128 x 128 x 4 bytes, and 3 x 12,288 x 2 of the convolution)."""
    shape = load_model_shape("Qwen/Qwen3.5-397B-A17B", Path())
    assert shape.state_bytes == 45 * (64 * 128 * 128 * 4 + 3 * 12_288 * 2)


@pytest.mark.parametrize("tp", [3, 5, 64])
def test_shape_tp_that_does_not_fit_is_one_line(tp):
    """Query heads must be divisible; KV heads are divided or copied."""
    with pytest.raises(InputError, match=rf"latency\.tp: {tp} does not divide the 32 attention"):
        load_model_shape("llama-3.1-8b", Path()).check_tp(tp)


NAMES = ["gpt2", "qwen3-0.6b", "Qwen/Qwen3-30B-A3B-FP8", "openai/gpt-oss-20b"]


@pytest.mark.parametrize("name", NAMES)
def test_shape_config_file_equals_the_table_entry(name, tmp_path):
    """A table entry written as config.json and loaded by path gives the same shape."""
    folder = tmp_path / "folder" / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(model_table()[name]), encoding="utf-8")
    expected = replace(load_model_shape(name, Path()), name=folder.name)
    assert load_model_shape(f"./folder/{name}", tmp_path) == expected
    assert load_model_shape(f"folder/{name}/config.json", tmp_path) == expected
    assert load_model_shape(str(folder), Path("/nowhere")) == expected


def test_shape_optional_keys_mean_what_their_architecture_says(tmp_path):
    """Absent: width = hidden / heads, no grouping for old Llama files, an untied head."""
    llama = write_config(
        tmp_path / "old.json",
        model_type="llama",
        num_key_value_heads="absent",
        tie_word_embeddings="absent",
    )
    shape = load_model_shape(str(llama), Path())
    assert (shape.name, shape.num_kv_heads, shape.head_dim) == ("old", 14, 64)
    assert not shape.tie_word_embeddings


def test_shape_biases_are_counted(tmp_path):
    """Attention and MLP biases add their widths in every layer."""
    plain = write_config(tmp_path / "plain.json", model_type="llama")
    biased = write_config(
        tmp_path / "biased.json", model_type="llama", attention_bias=True, mlp_bias=True
    )
    extra = (
        load_model_shape(str(biased), Path()).num_parameters
        - load_model_shape(str(plain), Path()).num_parameters
    )
    assert extra == 24 * ((14 + 2 + 2) * 64 + 896 + 2 * 4864 + 896)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_size": "absent"}, "hidden_size: missing"),
        ({"num_key_value_heads": "absent"}, "num_key_value_heads: missing"),
        ({"vocab_size": 0}, "vocab_size: must be a positive whole number, got 0"),
        ({"vocab_size": 1.5}, "vocab_size: must be"),
        ({"num_hidden_layers": True}, "num_hidden_layers: must be"),
        ({"num_attention_heads": "14"}, "num_attention_heads: must be"),
        ({"num_key_value_heads": 3}, "are not divisible by 3 KV heads"),
        ({"hidden_size": 897}, "are not divisible by 14 heads"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: must be true or false"),
        ({"use_sliding_window": "yes", "sliding_window": 9}, "use_sliding_window: must be true"),
        ({"layer_types": ["full_attention"]}, "layer_types: has 1 words for 24 layers"),
        ({"num_hidden_layers": 10**9}, "layers are more than any model has"),
        ({"model_type": "qwen-2"}, "did you mean qwen2"),
        ({"model_type": "absent"}, "model_type: unknown architecture"),
        ({"vocab_size": 10**20}, "more than any model has"),
    ],
)
def test_shape_bad_config_is_one_line_naming_file_and_key(tmp_path, changes, reason):
    """Missing, impossible and unsupported values are errors with the file's name."""
    path = write_config(tmp_path / "m.json", **changes)
    with pytest.raises(InputError) as caught:
        load_model_shape("m.json", tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert reason in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{\n"a": }', r"m\.json:2: not JSON"),
        (b"[]", r"m\.json: not a JSON object"),
        (b"\xff\xfe", r"m\.json:1: byte 1 is not UTF-8"),
        (b"[" * 100_000, r"m\.json: not JSON"),
        (b'{"a": ' + b"9" * 5_000 + b"}", r"m\.json: not JSON"),
    ],
)
def test_shape_malformed_file_is_bad_input(tmp_path, content, reason):
    """What is no JSON object is told with the file, and the line where known."""
    (tmp_path / "m.json").write_bytes(content)
    with pytest.raises(InputError, match=reason):
        load_model_shape("m.json", tmp_path)


def test_shape_qwen3_without_head_dim_has_heads_of_128(tmp_path):
    """transformers' default for this architecture does not follow from hidden_size."""
    config = model_table()["qwen3-0.6b"]
    without = {key: value for key, value in config.items() if key != "head_dim"}
    (tmp_path / "m.json").write_text(json.dumps(without | {"hidden_size": 512}))
    assert load_model_shape("m.json", tmp_path).head_dim == 128


def test_experts_with_copies_fit_any_number_of_gpus_up_to_their_own():
    """128 experts on 48 GPUs, some of them twice; not on 129, and not without copies."""
    shape = load_model_shape("Qwen/Qwen3-30B-A3B-FP8", Path())
    shape.check_experts(48, may_copy=True)
    with pytest.raises(InputError, match=r"latency\.moe_ep: 48 does not divide the 128 experts"):
        shape.check_experts(48)
    with pytest.raises(InputError, match=r"latency\.moe_ep: 129 is more than the 128 experts"):
        shape.check_experts(129, may_copy=True)
