"""Weights come from checkpoints on disk or from hashes; errors if neither works."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from realrun.model.paged_model import load_model
from realrun.model.weights import fill_random
from sim.core.errors import InputError

TOKENS = list(range(3, 60))

every_model = pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gpt2"])


@pytest.fixture
def checkpoint(tmp_path, paged_models):
    """Writes a model as transformers saves it; returns the folder."""

    def save(architecture="qwen3"):
        paged_models[architecture].model.save_pretrained(tmp_path)
        return tmp_path

    return save


def edit_config(folder, **keys):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


def load(path, **options):
    return load_model(str(path), **{"device": "cpu", "dtype": "float32", **options})


@every_model
def test_checkpoint_gives_the_logits_of_the_model_saved(
    architecture, checkpoint, paged_requests, plain_logits
):
    """Saved and loaded by a relative path, quietly; tied heads and all."""
    folder = checkpoint(architecture)
    server = paged_requests(load(f"./{folder.name}", base_dir=folder.parent), 16)
    server.add("a", TOKENS)
    logits = server.step({"a": len(TOKENS)})["a"]
    torch.testing.assert_close(logits, plain_logits(architecture, TOKENS)[-1])


def test_checkpoint_loads_without_a_word(checkpoint, capfd):
    """Neither progress bars nor reports on the standard streams."""
    folder = checkpoint()
    capfd.readouterr()
    load(folder)
    assert capfd.readouterr() == ("", "")


def test_checkpoint_in_torch_format_loads(checkpoint, paged_models):
    """Older checkpoints come as pytorch_model.bin."""
    folder = checkpoint()
    weights = folder / "model.safetensors"
    torch.save(load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()
    loaded = load(folder).model.state_dict()
    for name, tensor in paged_models["qwen3"].model.state_dict().items():
        assert torch.equal(loaded[name], tensor)


def test_checkpoint_takes_the_dtype_asked_for(checkpoint):
    """The file's own dtype does not matter."""
    model = load(checkpoint(), dtype="bfloat16")
    assert model.dtype is torch.bfloat16
    assert model.shape.dtype_bytes == 2


def test_directory_without_weights_is_refused(checkpoint):
    """Random weights are never taken for a checkpoint's."""
    folder = checkpoint()
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=f"^{folder}: weights cannot be read: .*safetensors"):
        load(folder)


def test_broken_weights_are_refused(checkpoint):
    """A file cut short."""
    folder = checkpoint()
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(InputError, match=f"^{folder}: weights cannot be read: "):
        load(folder)


def test_missing_weights_are_refused(checkpoint, capfd):
    """One matrix is not there; its name is said, and nothing else."""
    weights = checkpoint() / "model.safetensors"
    name = "model.layers.1.self_attn.q_proj.weight"
    save_file({k: v for k, v in load_file(weights).items() if k != name}, weights, {"format": "pt"})
    capfd.readouterr()
    with pytest.raises(InputError, match=f"{name}: missing from the weights.*1 of the weights"):
        load(weights.parent)
    assert capfd.readouterr() == ("", "")


def test_weights_of_another_size_are_refused(checkpoint):
    """A config.json that is not the weights' own."""
    folder = checkpoint()
    edit_config(folder, intermediate_size=128)
    with pytest.raises(InputError, match=r"of another size than config.json says"):
        load(folder)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model_type": "mistral"}, "model_type: .*mistral.*gpt2, llama, qwen2, qwen3"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
        ({"hidden_act": "nope"}, "nope"),
        ({"rope_parameters": {"rope_type": "nope", "rope_theta": 1e4}}, "nope"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type dynamic"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers"),
        ({"layer_types": ["sliding_attention", "full_attention"]}, "layer_types"),
    ],
)
@pytest.mark.parametrize("has_weights", [True, False])
def test_configurations_that_cannot_be_served_are_refused(
    keys, message, has_weights, checkpoint, tmp_path
):
    """One line that names the key or the value, with weights and without."""
    folder = checkpoint()
    edit_config(folder, **keys)
    path = folder if has_weights else folder / "config.json"
    with pytest.raises(InputError, match=f"^{folder}.*{message}") as caught:
        load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("architecture", "keys", "message"),
    [
        # This error comes only when the model is built.
        ("llama", {"pad_token_id": 500}, r"the model cannot be built: .*num_embeddings"),
        # GPT-2 with cross attention has weights that the simulator does not count.
        ("gpt2", {"add_cross_attention": True},
         r"config\.json: transformers builds \d+ parameters"),
        # The error comes before anything is allocated.
        ("llama", {"hidden_size": 2**16, "intermediate_size": 2**20, "num_hidden_layers": 100},
         r"weights take \d+\.\d\d GiB, but cpu has \d+\.\d\d GiB free"),
    ],
    ids=["padding token outside of the vocabulary", "other sizes", "larger than memory"],
)  # fmt: skip
def test_models_that_cannot_be_built_are_refused(
    tmp_path, config_paths, architecture, keys, message
):
    """With what is wrong, or with figures."""
    shutil.copy(config_paths[architecture], tmp_path / "config.json")
    edit_config(tmp_path, **keys)
    with pytest.raises(InputError, match=message):
        load(tmp_path / "config.json")


def test_unknown_names_are_refused():
    """With what is known, or the nearest name."""
    with pytest.raises(InputError, match=r"dtype.*int8.*bfloat16, float16, float32"):
        load("tiny", dtype="int8")
    with pytest.raises(InputError, match=r"model.*'tinny' .*did you mean tiny"):
        load("tinny")


def test_random_weights_depend_on_the_seed_alone(config_paths):
    """Two loads of a seed are one model; another seed is another."""
    path = config_paths["gpt2"]
    torch.manual_seed(1)
    first = load(path, seed=4).model.state_dict()
    torch.manual_seed(2)
    again = load(path, seed=4).model.state_dict()
    other = load(path, seed=5).model.state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    name = "transformer.h.0.mlp.c_fc.weight"
    assert not torch.equal(first[name], other[name])


def test_random_numbers_are_the_same_everywhere():
    """The hash in exact integers, so that no device's arithmetic gets away with another one."""
    matrix = torch.empty(100, 20)
    key, std = 0xDEADBEEF, 0.25
    fill_random(matrix, key=key, std=std)
    for index, number in enumerate(matrix.flatten().tolist()):
        bits = (index * 0x9E3779B1 + key) % 2**32
        bits = (bits ^ bits >> 16) * 0x7FEB352D % 2**32
        bits = (bits ^ bits >> 15) * 0x846CA68B % 2**32
        signed = bits - 2**32 if bits >= 2**31 else bits
        expected = np.float32(signed >> 8) * np.float32(std * 3**0.5 / 2**23)
        assert number == expected


def test_random_numbers_are_spread_evenly():
    """Mean, deviation, bounds and neighbours of 3 million numbers, over a chunk's boundary."""
    matrix = torch.empty(3000, 1000)
    fill_random(matrix, key=7, std=0.5)
    assert abs(matrix.mean()) < 1e-3
    assert matrix.std().item() == pytest.approx(0.5, rel=1e-3)
    assert matrix.abs().max() <= 0.5 * 3**0.5
    assert (
        abs(torch.corrcoef(torch.stack([matrix[:-1].flatten(), matrix[1:].flatten()]))[0, 1]) < 2e-3
    )
    assert len(matrix.unique()) > 2_500_000


def test_packaged_model_has_room_for_long_requests():
    """The packaged table names no longest context for rotary models."""
    assert load("tiny").max_positions == 131_072
