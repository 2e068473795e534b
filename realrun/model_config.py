"""Finds a model by name or path: its sizes, its configuration and the folder of its weights."""

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

# The longest request of a packaged model with rotary positions. These have no limit of their own,
# and the table of packaged models gives none.
_ROTARY_MAX_POSITIONS = 131_072

# With these types the rotary frequencies depend on the longest request of a batch, so the K of a
# cached page would be wrong in other batches.
_UNSTEADY_ROPE_TYPES = ("dynamic", "longrope")


@dataclass(frozen=True, slots=True, eq=False)
class ModelSource:
    """A model before its weights are loaded.

    Attributes:
        where: the first words of errors about this model.
        shape: its sizes.
        config: its configuration for transformers.
        checkpoint: the directory of its weights; None for random weights.
    """

    where: str
    shape: ModelShape
    config: PretrainedConfig
    checkpoint: Path | None


def find_model(name_or_path: str, base_dir: Path) -> ModelSource:
    """Find a model by a name or path as `load_model_shape` takes it.

    A directory is a checkpoint. A packaged name or the path of a `.json` file is a configuration
    without weights.

    Raises:
        InputError: from `load_model_shape`; or transformers refuses the configuration; or it has
            sliding attention, or rotary frequencies that depend on the batch.
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
        raise InputError(f"{where}: transformers refuses it: {one_line(error)}") from None
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in _UNSTEADY_ROPE_TYPES:
        raise InputError(f"{where}: rope_type {rope['rope_type']}: such models are not supported")
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        raise InputError(f"{where}: layer_types: sliding attention is not supported")
    return config


def one_line(error: Exception) -> str:
    """An exception of another library as one line, for the end of a message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
