"""Keys under which scenarios name files, and what a relative path in an option means."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.scenario.yaml_loader import YamlValue

# `latency.host` and `latency.path` may also be names of packaged data, and `model` an id.
FILE_KEYS = ("path", "model", "host", "tokenizer")
_NAMES_MODEL = "model"
# A file with another ending, or a folder, is recognised if it exists.
_SUFFIXES = (".json", ".jsonl", ".csv", ".gz")


def from_here(key: str, value: YamlValue, base_dir: Path) -> YamlValue:
    """The value of an option, with its paths made relative to the scenario's folder.

    The shell completes paths from the current folder, so that is where a user means them from. A
    name of packaged data stays as it is.

    Args:
        key: the last part of a key path; of a mapping, values of its own keys are changed too.
        value: what the option sets the key to.
        base_dir: the scenario's folder.
    """
    if isinstance(value, dict):
        return {
            name: from_here(str(name).rpartition(".")[2], item, base_dir)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [from_here(key, item, base_dir) for item in value]
    if isinstance(value, str) and key in FILE_KEYS and _is_path(key, value):
        # Resolved, because `..` leaves the folder that a link leads to.
        return os.path.relpath(value, base_dir.resolve())
    return value


def _is_path(key: str, value: str) -> bool:
    if not value or Path(value).is_absolute():
        return False
    # A model may be an id, and a dot in it, as in Qwen/Qwen2.5-0.5B, begins no suffix.
    is_file_name = key != _NAMES_MODEL and value.endswith(_SUFFIXES)
    return is_file_name or os.path.exists(value)  # noqa: PTH110 - of any string


def for_folder(data: Mapping[str, Any], base_dir: Path, folder: Path) -> dict[str, Any]:
    """The data of a scenario or of a server pool, with its paths relative to another folder.

    Paths of the model, the latency and the host are changed, also those of the scenario's pools. A
    name that is no file stays as it is: it may be a model's id or packaged data.

    Args:
        data: the keys.
        base_dir: the folder that their paths are relative to.
        folder: the folder that they shall be relative to.
    """
    moved = dict(data)
    for key in ("model", "path", "host"):
        path = moved.get(key)
        if isinstance(path, str) and (base_dir / path).exists():
            moved[key] = os.path.relpath((base_dir / path).resolve(), folder.resolve())
    if isinstance(latency := moved.get("latency"), Mapping):
        moved["latency"] = for_folder(latency, base_dir, folder)
    if isinstance(pools := moved.get("pools"), Mapping):
        moved["pools"] = {name: for_folder(pool, base_dir, folder) for name, pool in pools.items()}
    return moved
