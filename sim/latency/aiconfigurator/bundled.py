"""Configurations of models that come with the package aiconfigurator-core.

They are read as files; the package itself is not imported.
"""

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from sim.core.json_object import read_json_object
from sim.latency.architectures.quantization import with_quantization
from sim.latency.architectures.values import Config

_PACKAGE, _FOLDER = "aiconfigurator_core", "model_configs"
_CONFIG, _QUANTIZATION = "_config.json", "_hf_quant_config.json"


@cache
def bundled_models() -> Mapping[str, Path]:
    """The files by Hugging Face id; none without the package."""
    spec = find_spec(_PACKAGE)
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    paths = [path for folder in folders for path in sorted(Path(folder, _FOLDER).iterdir())]
    return {
        path.name.removesuffix(_CONFIG).replace("--", "/", 1): path
        for path in paths
        if path.name.endswith(_CONFIG) and not path.name.endswith(_QUANTIZATION)
    }


def bundled_config(model: str) -> Config:
    """The config.json of one of `bundled_models`, with its number formats."""
    path = bundled_models()[model]
    config = read_json_object(path)
    beside = path.with_name(path.name.removesuffix(_CONFIG) + _QUANTIZATION)
    return with_quantization(config, read_json_object(beside)) if beside.exists() else config
