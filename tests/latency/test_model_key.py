"""What the key `model` means: paths, names of the table, Hugging Face ids."""

import json

import pytest

from sim.core.errors import InputError
from sim.latency.architectures.model_key import (
    bundled_config,
    bundled_models,
    find_model,
    model_table,
)
from sim.latency.architectures.read import is_described, shape_of_config

LLAMA = model_table()["llama-3.1-8b"]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("llama-3.1-8b", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B"),
        ("qwen/qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-V3"),
    ],
)
def test_model_names_and_ids_mean_entries_of_the_table(key, name, tmp_path):
    """Models of the same sizes have one entry; upper and lower case are the same in ids."""
    found = find_model(key, tmp_path)
    assert (found.name, found.config, found.path) == (name, model_table()[name], None)


def test_model_path_that_exists_wins_over_an_id(tmp_path):
    """A folder may be called like a model; without a config.json it is no model."""
    folder = tmp_path / "Qwen" / "Qwen3-8B"
    folder.mkdir(parents=True)
    assert find_model("Qwen/Qwen3-8B", tmp_path).path is None
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    found = find_model("Qwen/Qwen3-8B", tmp_path)
    assert (found.name, found.config) == ("Qwen3-8B", LLAMA)
    assert found.path == folder / "config.json"


def test_model_folder_tells_its_number_formats_in_a_second_file(tmp_path):
    """As modelopt writes them."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    formats = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    text = json.dumps({"producer": {}, "quantization": formats})
    (tmp_path / "hf_quant_config.json").write_text(text, encoding="utf-8")
    assert find_model(str(tmp_path), tmp_path).config["quantization_config"] == formats


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("llama-3.1-8B", r"'llama-3\.1-8B' \(did you mean llama-3\.1-8b\? otherwise give the path"),
        ("Qwen/Qwen3-33B", r"did you mean Qwen/Qwen3-32B\?"),
        ("Qwen3-30B-A3B", r"did you mean Qwen/Qwen3-30B-A3B\?"),
        ("qwen/qwen3", r"did you mean (\S+ or ){2}\S+\?"),
        ("nobody/nothing", r"'nobody/nothing' \(give the path of its config\.json\)"),
        ("./no", r"no/config\.json: cannot be read: No such file"),
        ("a/b/c", r"a/b/c/config\.json: cannot be read: No such file"),
        ("no.json", r"no\.json: cannot be read: No such file"),
    ],
)
def test_model_that_is_unknown_is_one_short_line(key, reason, tmp_path):
    """The nearest names, or the file that is missing."""
    with pytest.raises(InputError, match=reason) as caught:
        find_model(key, tmp_path)
    assert len(str(caught.value)) < 200


def test_model_table_has_the_sizes_of_the_packages_configurations(tmp_path):
    """Where both know a model; and every other model of the package is found, too."""
    pytest.importorskip("aiconfigurator_core")
    num_same = num_other = 0
    for key in bundled_models():
        found = find_model(key, tmp_path)
        config = bundled_config(key)
        if found.name in model_table():
            shapes = [shape_of_config("", one, where="") for one in (found.config, config)]
            assert shapes[0] == shapes[1], key
            num_same += 1
        elif is_described(config):
            assert shape_of_config(key, config, where=key).weight_bytes > 0
            num_other += 1
    assert num_same > 25
    assert num_other > 20
