"""Which model a name or path means: its sizes, its transformers configuration, its weights."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING, PretrainedConfig

from realrun.quiet import quiet_transformers
from sim.core.errors import InputError
from sim.latency.shape_files import load_model_shape, model_table
from sim.latency.shapes import ModelShape

# The packaged table names no longest context, and rotary positions know no bound of their own.
_ROTARY_MAX_POSITIONS = 131_072

# Frequencies that change with the longest request of a batch would change the K of cached pages.
_UNSTEADY_ROPE_TYPES = ("dynamic", "longrope")


@dataclass(frozen=True, slots=True, eq=False)
class ModelSource:
    """A model before its weights are loaded.

    Attributes:
        where: opens the messages of its errors.
        shape: its sizes.
        config: its configuration, as transformers takes it.
        checkpoint: the directory that holds its weights; None for random ones.
    """

    where: str
    shape: ModelShape
    config: PretrainedConfig
    checkpoint: Path | None


def find_model(name_or_path: str, base_dir: Path) -> ModelSource:
    """Find a model by the names and paths that `load_model_shape` takes.

    A directory is a checkpoint. A packaged name or the path of a `.json` file is a configuration
    without weights.

    Raises:
        InputError: whatever `load_model_shape` raises, a configuration that transformers does not
            take, rotary frequencies that depend on the batch, or sliding attention.
    """
    shape = load_model_shape(name_or_path, base_dir)
    packaged = model_table().get(name_or_path)
    if packaged is not None:
        where = f"model {name_or_path}"
        keys = {"max_position_embeddings": _ROTARY_MAX_POSITIONS, **packaged}
        if packaged["model_type"] == "gpt2":
            del keys["max_position_embeddings"]
        return ModelSource(where, shape, _read_keys(keys, where), None)
    path = base_dir / name_or_path
    checkpoint = None if path.suffix == ".json" else path
    config_path = path if checkpoint is None else path / "config.json"
    keys = json.loads(config_path.read_text(encoding="utf-8"))
    return ModelSource(str(path), shape, _read_keys(keys, str(config_path)), checkpoint)


def _read_keys(keys: Mapping[str, object], where: str) -> PretrainedConfig:
    try:
        with quiet_transformers():
            config = CONFIG_MAPPING[str(keys["model_type"])].from_dict(dict(keys))
    except (StrictDataclassError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where}: transformers does not take it: {one_line(error)}") from None
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in _UNSTEADY_ROPE_TYPES:
        raise InputError(f"{where}: rope_type {rope['rope_type']}: such models are not supported")
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        raise InputError(f"{where}: layer_types: sliding attention is not supported")
    return config


def one_line(error: Exception) -> str:
    """An error of another library as the end of a one-line message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
