"""The shape of the model that a scenario names."""

from pathlib import Path

from sim.latency.architectures.read import is_described, shape_of_config
from sim.latency.model_key import FoundModel, find_model
from sim.latency.shapes import ModelShape


def load_model_shape(key: str, base_dir: Path) -> ModelShape:
    """The shape of a model.

    Args:
        key: what the scenario calls it; see `find_model`.
        base_dir: the folder of the file that names the model.

    Raises:
        InputError: there is no such model, its file cannot be read, a value is missing or
            impossible, or its architecture is one that a `ModelShape` does not describe.
    """
    return shape_of(find_model(key, base_dir))


def shape_of(found: FoundModel) -> ModelShape:
    """The shape of a model. Raises InputError as `load_model_shape` does."""
    return shape_of_config(found.name, found.config, where=found.where)


def shape_if_described(found: FoundModel) -> ModelShape | None:
    """The shape of a model; None if a `ModelShape` does not describe its architecture.

    Raises:
        InputError: a value is missing or impossible.
    """
    return shape_of(found) if is_described(found.config) else None
