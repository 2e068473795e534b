"""Where model shapes come from: the packaged table, or a Hugging Face config.json."""

import json
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path

from sim.core.errors import InputError
from sim.core.json_object import read_json_object
from sim.core.messages import unknown_name
from sim.latency.shapes import ModelShape

Config = Mapping[str, object]

# Far more than any model has; with it every duration fits 64-bit nanoseconds.
_MAX_PARAMETERS = 10**15

# Qwen3's heads are this wide by default, whatever hidden_size is.
_QWEN3_HEAD_DIM = 128


def load_model_shape(name_or_path: str, base_dir: Path) -> ModelShape:
    """Load a model's shape from the packaged table or from a config.json.

    Args:
        name_or_path: a name of the table; or, if it has a slash or ends in `.json`, the path of
            such a file or of a directory with a config.json, relative to `base_dir` unless
            absolute.
        base_dir: the directory of the file that names the model.

    Raises:
        InputError: unknown name, a file that cannot be read, a missing or impossible value, or an
            architecture whose cost a `ModelShape` does not describe.
    """
    table = model_table()
    if name_or_path in table:
        return shape_of_config(name_or_path, table[name_or_path], where=f"model {name_or_path}")
    if "/" not in name_or_path and not name_or_path.endswith(".json"):
        raise InputError(unknown_name("model", name_or_path, table), key=("model",))
    path = config_file(name_or_path, base_dir)
    name = path.parent.name if path.name == "config.json" else path.stem
    return shape_of_config(name, read_json_object(path), where=str(path))


def config_file(path: str, base_dir: Path) -> Path:
    """The config.json that a path means: the file itself, or the one in the folder."""
    file = base_dir / path
    return file if file.suffix == ".json" else file / "config.json"


def model_table() -> Mapping[str, Config]:
    """Published configurations by name, with the keys of config.json."""
    text = (files("sim.latency") / "models.json").read_text(encoding="utf-8")
    table: dict[str, Config] = json.loads(text)
    return table


def shape_of_config(name: str, config: Config, *, where: str) -> ModelShape:
    """The shape that a config.json describes; error messages begin with `where`."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in _READERS:
        reason = unknown_name("architecture", str(model_type), _READERS)
        raise InputError(f"{where}: model_type: {reason}")
    # Both change the bytes and FLOPs of a step; ModelShape has no fields for that.
    for key in ("quantization_config", "use_sliding_window"):
        if config.get(key):
            raise InputError(f"{where}: {key}: such models are not supported")
    shape = _READERS[model_type](name, config, where)
    if shape.num_parameters > _MAX_PARAMETERS:
        raise InputError(f"{where}: {shape.num_parameters} parameters are more than any model has")
    return shape


def _count(config: Config, key: str, where: str, default: int | None = None) -> int:
    """A positive integer; `default` if the key is absent or null."""
    value = config.get(key)
    if value is None:
        value = default
    if value is None:
        raise InputError(f"{where}: {key}: missing")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{where}: {key}: must be a positive whole number, got {value!r}")
    return value


def _flag(config: Config, key: str, where: str, *, default: bool) -> bool:
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise InputError(f"{where}: {key}: must be true or false, got {value!r}")
    return value


def _head_dim(hidden_size: int, num_heads: int, where: str) -> int:
    if hidden_size % num_heads:
        reason = f"{hidden_size} hidden units are not divisible by {num_heads} heads"
        raise InputError(f"{where}: {reason}")
    return hidden_size // num_heads


def _llama_like(name: str, config: Config, where: str) -> ModelShape:
    """Llama, Qwen2 and Qwen3; optional keys have the defaults of transformers."""
    model_type = config["model_type"]
    num_layers = _count(config, "num_hidden_layers", where)
    hidden_size = _count(config, "hidden_size", where)
    num_heads = _count(config, "num_attention_heads", where)
    # Only Llama files from before grouped-query attention lack this key.
    no_groups = num_heads if model_type == "llama" else None
    num_kv_heads = _count(config, "num_key_value_heads", where, no_groups)
    if num_heads % num_kv_heads:
        raise InputError(f"{where}: {num_heads} heads are not divisible by {num_kv_heads} KV heads")
    if model_type == "qwen3" or config.get("head_dim") is not None:
        head_dim = _count(config, "head_dim", where, _QWEN3_HEAD_DIM)
    else:
        head_dim = _head_dim(hidden_size, num_heads, where)
    intermediate_size = _count(config, "intermediate_size", where)

    per_layer = 2 * hidden_size
    qkv_width = (num_heads + 2 * num_kv_heads) * head_dim
    if model_type == "qwen2":
        per_layer += qkv_width
    elif _flag(config, "attention_bias", where, default=False):
        per_layer += qkv_width + hidden_size
    if _flag(config, "mlp_bias", where, default=False):
        per_layer += 2 * intermediate_size + hidden_size
    if model_type == "qwen3":
        per_layer += 2 * head_dim
    return ModelShape(
        name=name,
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=intermediate_size,
        vocab_size=_count(config, "vocab_size", where),
        tie_word_embeddings=_flag(config, "tie_word_embeddings", where, default=False),
        gated_mlp=True,
        num_other_parameters=num_layers * per_layer + hidden_size,
    )


def _gpt2(name: str, config: Config, where: str) -> ModelShape:
    num_layers = _count(config, "n_layer", where)
    hidden_size = _count(config, "n_embd", where)
    num_heads = _count(config, "n_head", where)
    intermediate_size = _count(config, "n_inner", where, 4 * hidden_size)
    # Two layer norms with bias; biases of q, k, v and the two output projections; the inner bias.
    per_layer = 4 * hidden_size + 5 * hidden_size + intermediate_size
    positions = _count(config, "n_positions", where) * hidden_size
    return ModelShape(
        name=name,
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=_head_dim(hidden_size, num_heads, where),
        intermediate_size=intermediate_size,
        vocab_size=_count(config, "vocab_size", where),
        tie_word_embeddings=_flag(config, "tie_word_embeddings", where, default=True),
        gated_mlp=False,
        num_other_parameters=num_layers * per_layer + positions + 2 * hidden_size,
    )


_READERS: Mapping[str, Callable[[str, Config, str], ModelShape]] = {
    "llama": _llama_like,
    "qwen2": _llama_like,
    "qwen3": _llama_like,
    "gpt2": _gpt2,
}
