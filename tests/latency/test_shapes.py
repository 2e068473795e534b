"""Model shapes from the table and from config.json files."""

import json
from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.latency.shape_files import load_model_shape, model_table

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


def write_config(path, **changes):
    config = {key: value for key, value in (QWEN2 | changes).items() if value != "absent"}
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "num_parameters"),
    [
        # As published with the weights.
        ("gpt2", 124_439_808),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen3-0.6b", 596_049_920),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
    ],
)
def test_shape_published_model_has_the_published_size(name, num_parameters):
    """Shapes give the published parameter counts exactly, at two bytes each."""
    shape = load_model_shape(name, Path())
    assert shape.num_parameters == num_parameters
    assert shape.weight_bytes == 2 * num_parameters


@pytest.mark.parametrize(
    ("name", "kv_bytes"),
    [("gpt2", 36_864), ("qwen2.5-0.5b", 12_288), ("llama-3.1-8b", 131_072), ("tiny", 2_048)],
)
def test_shape_kv_bytes_count_keys_and_values_of_all_layers(name, kv_bytes):
    """2 x layers x KV heads x head width x 2 bytes."""
    assert load_model_shape(name, Path()).kv_bytes_per_token == kv_bytes


@pytest.mark.parametrize("name", sorted(model_table()))
def test_shape_config_file_equals_the_table_entry(name, tmp_path):
    """A table entry written as config.json and loaded by path gives the same shape."""
    directory = tmp_path / name
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(model_table()[name]), encoding="utf-8")
    expected = load_model_shape(name, Path())
    assert load_model_shape(f"./{name}", tmp_path) == expected
    assert load_model_shape(f"{name}/config.json", tmp_path) == expected
    assert load_model_shape(str(directory), Path("/nowhere")) == expected


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
        ({"quantization_config": {"bits": 4}}, "quantization_config: such models are not"),
        ({"use_sliding_window": True}, "use_sliding_window: such models are not"),
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
        (b"\xff\xfe", r"m\.json: not JSON"),
        (b"[" * 100_000, r"m\.json: not JSON"),
        (b'{"a": ' + b"9" * 5_000 + b"}", r"m\.json: not JSON"),
    ],
)
def test_shape_malformed_file_is_bad_input(tmp_path, content, reason):
    """What is no JSON object is told with the file, and the line where known."""
    (tmp_path / "m.json").write_bytes(content)
    with pytest.raises(InputError, match=reason):
        load_model_shape("m.json", tmp_path)


def test_shape_missing_path_and_unknown_name_are_bad_input(tmp_path):
    """A wrong path names the file; a wrong name offers the nearest one."""
    with pytest.raises(InputError, match=r"no/config\.json: No such file"):
        load_model_shape("./no", tmp_path)
    with pytest.raises(InputError, match=r"'llama-3\.1-8B' \(did you mean llama-3\.1-8b\?"):
        load_model_shape("llama-3.1-8B", tmp_path)


def test_shape_qwen3_without_head_dim_has_heads_of_128(tmp_path):
    """transformers' default for this architecture does not follow from hidden_size."""
    config = model_table()["qwen3-0.6b"]
    without = {key: value for key, value in config.items() if key != "head_dim"}
    (tmp_path / "m.json").write_text(json.dumps(without | {"hidden_size": 512}))
    assert load_model_shape("m.json", tmp_path).head_dim == 128
