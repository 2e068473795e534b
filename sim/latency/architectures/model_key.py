"""What the key `model` of a scenario means: a path, a name of our table, or a Hugging Face id."""

import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from sim.core.errors import InputError
from sim.core.files import located
from sim.core.packed import read_json_object
from sim.latency.architectures.config_json import Config, with_quantization
from sim.latency.architectures.read import is_described, shape_of_config
from sim.latency.shapes import ModelShape

# Of a model in a folder; the second may be missing.
MODEL_FILES = ("config.json", "hf_quant_config.json")
_FILE, _QUANTIZATION_FILE = MODEL_FILES
# Names, in an entry of the table, the one that it differs from.
_BASE = "base"
# Ends of names by which a model is stored, with the format of its weights, or was trained further.
_STORED = {
    "-fp8": "fp8", "-fp8-dynamic": "fp8", "-nvfp4": "nvfp4", "-fp4": "nvfp4", "-bf16": "",
}  # fmt: skip
_TRAINED = re.compile(r"-(exp|instruct|thinking|chat|hf|it|base|terminus|speciale|\d{4})$")
_MAX_NEAR, _NEARLY_SAME, _SIMILAR = 3, 0.9, 0.7


class FoundModel(NamedTuple):
    """A model's configuration, and where it was found.

    Attributes:
        name: in messages and reports. For a path, that of the folder or the file.
        where: how errors about a key of it begin.
        path: the config.json; None: it is not a file of the user.
    """

    name: str
    config: Config
    where: str
    path: Path | None = None


def find_model(key: str, base_dir: Path) -> FoundModel:
    """The model that `key` means; a relative path starts from `base_dir`.

    A key with a slash or the ending `.json` is the path of a config.json or of a folder with one,
    if it exists. Any other key is a name of our table or an id whose configuration the package
    aiconfigurator-core has. Upper and lower case are the same in ids.
    """
    is_path = "/" in key or key.endswith(".json")
    path = _config_file(key, base_dir)
    if is_path and path.is_file():
        name = path.parent.name if path.name == _FILE else path.stem
        return FoundModel(name, _read(path), str(path), path)
    name = canonical_name(key)
    table = model_table()
    if name in table:
        return FoundModel(name, table[name], f"model {name}")
    if _is_surely_path(key, base_dir):
        return FoundModel(key, _read(path), str(path), path)
    bundled = bundled_models()
    if key in bundled:
        return FoundModel(key, bundled_config(key), f"model {key}")
    raise InputError(_unknown(key, {*table, *_aliases(), *bundled}), key=("model",))


def canonical_name(key: str) -> str:
    """The name under which our table has a model; the key itself if the table has none."""
    aliases = _aliases()
    return aliases.get(key, key) if "/" not in key else aliases.get(key.lower(), key)


def _config_file(path: str, base_dir: Path) -> Path:
    file = located(base_dir, path)
    return file if file.suffix == ".json" else file / _FILE


def _is_surely_path(key: str, base_dir: Path) -> bool:
    """Whether no id looks like this: so the error is about the file."""
    looks_like_id = key.count("/") == 1 and not key.startswith((".", "~", "/"))
    return key.endswith(".json") or (
        "/" in key and (not looks_like_id or (base_dir / key).exists())
    )


def _read(path: Path) -> Config:
    """A config.json, with the number formats that lie beside it (modelopt)."""
    config = read_json_object(path)
    beside = path.with_name(_QUANTIZATION_FILE)
    if path.name != _FILE or not beside.is_file():
        return config
    return with_quantization(config, read_json_object(beside))


@cache
def model_table() -> Mapping[str, Config]:
    """Published configurations by name or Hugging Face id, with the keys of config.json."""
    table: dict[str, Config] = {}
    for name, entry in _entries().items():
        if isinstance(entry, dict):
            changes = {key: value for key, value in entry.items() if key != _BASE}
            table[name] = {**table.get(str(entry.get(_BASE)), {}), **changes}
    return table


@cache
def _aliases() -> Mapping[str, str]:
    """Names of the table by other names of the same sizes, and by ids in lower case."""
    entries = _entries()
    others = {name: entry for name, entry in entries.items() if isinstance(entry, str)}
    ids = {name.lower(): others.get(name, name) for name in entries if "/" in name}
    return {**others, **ids}


@cache
def _entries() -> dict[str, dict[str, object] | str]:
    text = (files("sim.latency") / "models.json").read_text(encoding="utf-8")
    entries: dict[str, dict[str, object] | str] = json.loads(text)
    return entries


def _unknown(key: str, known: Iterable[str]) -> str:
    """The nearest names: one that is nearly the same, or else a few that are similar."""
    by_name: dict[str, str] = {}
    for name in sorted(known):
        by_name.setdefault(name.lower(), name)
        by_name.setdefault(name.lower().rpartition("/")[2], name)
    names: list[str] = []
    for told in (key.lower(), key.lower().rpartition("/")[2]):
        nearly = get_close_matches(told, by_name, n=1, cutoff=_NEARLY_SAME)
        near = nearly or get_close_matches(told, by_name, n=_MAX_NEAR, cutoff=_SIMILAR)
        names += [by_name[word] for word in near]
        if nearly:
            names = [by_name[nearly[0]]]
            break
    other = "give the path of its config.json"
    if not names:
        return f"unknown model {key!r} ({other})"
    hint = " or ".join(list(dict.fromkeys(names))[:_MAX_NEAR])
    return f"unknown model {key!r} (did you mean {hint}? otherwise {other})"


_PACKAGE, _FOLDER = "aiconfigurator_core", "model_configs"
_CONFIG, _QUANTIZATION = "_config.json", "_hf_quant_config.json"


@cache
def bundled_models() -> Mapping[str, Path]:
    """Files of the package aiconfigurator-core, which is not imported, by Hugging Face id."""
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


def load_model_shape(key: str, base_dir: Path) -> ModelShape:
    """The shape of the model that a scenario calls `key`; see `find_model`."""
    return shape_of(find_model(key, base_dir))


def shape_of(found: FoundModel) -> ModelShape:
    """The shape of a model whose architecture a `ModelShape` describes; an InputError otherwise."""
    return shape_of_config(found.name, found.config, where=found.where)


class Variant(NamedTuple):
    """A model that is known under another name: trained or stored in another way.

    Attributes:
        model: the known one's name.
        weights: number format of its weights, as aiconfigurator-core calls it; empty: the same.
    """

    model: str
    weights: str


def variant_of(key: str) -> Variant | None:
    """The known model of which an id names a variant, such as Qwen3-32B-FP8-dynamic of Qwen3-32B.

    None: the id itself is known, or no model is. Sizes of a variant are those of the model.
    """
    known = {name.rpartition("/")[2].lower(): name
             for name in (*bundled_models(), *_aliases(), *model_table())}  # fmt: skip
    if key in {*known.values()} or canonical_name(key) in model_table():
        return None
    rest = key.rstrip("/").rpartition("/")[2].lower()
    stored = next((ending for ending in _STORED if rest.endswith(ending)), "")
    rest = rest.removesuffix(stored)
    while rest:
        if (name := known.get(rest + stored)) is not None:
            return Variant(name, "")
        if (name := known.get(rest)) is not None:
            return Variant(name, _STORED.get(stored, ""))
        shorter = _TRAINED.sub("", rest)
        rest = "" if shorter == rest else shorter
    return None


def shape_if_known(key: str) -> ModelShape | None:
    """The shape of a model that a real server's command names; None if nothing is known of it."""
    try:
        return shape_if_described(find_model(key, Path()))
    except InputError:
        return None


def shape_if_described(found: FoundModel) -> ModelShape | None:
    """The shape of a model; None if a `ModelShape` does not describe its architecture."""
    return shape_of(found) if is_described(found.config) else None
