"""Finds a model by name or path: its sizes, its configuration and the folder of its weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transformers import CONFIG_MAPPING, PretrainedConfig
from transformers.utils import logging

from sim.core.errors import InputError, unknown_name
from sim.latency.architectures.model_key import find_model as find_config
from sim.latency.architectures.read import shape_of_config
from sim.latency.shapes import ModelShape


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """A context in which transformers prints no warnings, reports or progress bars."""
    verbosity, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()


# The longest request of a packaged model with rotary positions. These have no limit of their own,
# and the table of packaged models gives none.
_ROTARY_MAX_POSITIONS = 131_072

# Simulated models have more architectures.
_MODEL_TYPES = ("llama", "qwen2", "qwen3", "gpt2")

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
        checkpoint: the folder of its weights; None for random weights.
    """

    where: str
    shape: ModelShape
    config: PretrainedConfig
    checkpoint: Path | None


def find_model(name_or_path: str, base_dir: Path) -> ModelSource:
    """Find a model by what a scenario calls it.

    A folder is a checkpoint. A packaged name or the path of a `.json` file is a configuration
    without weights.

    Raises:
        InputError: there is no such model; the architecture is none that runs here; transformers
            refuses the configuration; or it has sliding attention, quantised weights, or rotary
            frequencies that depend on the batch.
    """
    found = find_config(name_or_path, base_dir)
    shape = shape_of_config(found.name, found.config, where=found.where)
    _check_runs(found.config, found.where)
    if found.path is None:
        keys = {"max_position_embeddings": _ROTARY_MAX_POSITIONS, **found.config}
        if found.config["model_type"] == "gpt2":
            del keys["max_position_embeddings"]
        return ModelSource(found.where, shape, _read_keys(keys, found.where), None)
    path = base_dir / name_or_path
    checkpoint = None if path.suffix == ".json" else path
    return ModelSource(str(path), shape, _read_keys(found.config, found.where), checkpoint)


def _check_runs(config: Mapping[str, object], where: str) -> None:
    """Refuse models that the runner's attention or kernels do not compute."""
    model_type = str(config.get("model_type"))
    if model_type not in _MODEL_TYPES:
        reason = unknown_name("architecture", model_type, _MODEL_TYPES)
        raise InputError(f"{where}: model_type: {reason}")
    for key in ("quantization_config", "use_sliding_window"):
        if config.get(key):
            raise InputError(f"{where}: {key}: such models are not supported")


def _read_keys(keys: Mapping[str, object], where: str) -> PretrainedConfig:
    try:
        with quiet_transformers():
            config = CONFIG_MAPPING[str(keys["model_type"])].from_dict(dict(keys))
    except Exception as error:  # a configuration may be anything
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
