"""Builds a latency model of kind `layers`: finds the table's format, checks keys against it."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from sim.core.errors import InputError
from sim.core.files import located
from sim.latency.architectures.model_key import model_table
from sim.latency.architectures.read import shape_of_config
from sim.latency.config import LayersLatencyConfig
from sim.latency.host import HostTimes, read_host_times
from sim.latency.layers.model import AllReduce, LayerComposition, LayersLatency, LayerTimes
from sim.latency.layers.servingsim import is_serving_sim, read_serving_sim
from sim.latency.layers.splitwise import NAME, SplitwiseModel, read_splitwise
from sim.latency.layers.vidur import is_vidur, read_vidur
from sim.latency.shapes import ModelShape
from sim.tables.csv_table import find_table

_Reader = Callable[..., LayerTimes]
_FOR_LAYERS = ("num_layers", "all_reduce_gb_s", "all_reduce_latency_s")
_FOR_WHOLE_MODELS = ("table_model", "table_hardware")
_NO_EXPERTS = (
    "is for tables with experts: without them ranks do not step together (replicas: say how many)"
)
_FINETUNED = "-instruct"
_PATH_KEY = ("latency", "path")


def build_layers(
    config: LayersLatencyConfig,
    *,
    model: ModelShape | None,
    base_dir: Path,
    overlaps: bool = True,
    verifies: bool = False,
) -> LayersLatency:
    """The latency model that a section asks for.

    `overlaps`: the scheduler decides a step while the one before runs. `verifies`: steps verify
    draft tokens.
    """
    host = _host_times(config, base_dir)
    path = located(base_dir, config.path)
    table = _whole_model_table(path)
    if table is not None:
        if config.dp > 1:
            raise InputError(_NO_EXPERTS, key=("latency", "dp"))
        if verifies:
            raise InputError(f"{path}: has whole models, no times of draft tokens", key=_PATH_KEY)
        _refuse(config, _FOR_LAYERS, "belongs to tables of layers; this one has whole models")
        sweeps = read_splitwise(table, config.tp, config.table_model, config.table_hardware)
        _check_spread(config, known=False)
        return LayersLatency(SplitwiseModel(sweeps), host, overlaps=overlaps)
    _refuse(config, _FOR_WHOLE_MODELS, "belongs to tables of whole models; this one has layers")
    layers = _layers(config, path, model)
    _check_spread(config, known=layers.knows_spread)
    corrects = config.spread_correction
    return LayersLatency(layers, host, overlaps=overlaps, corrects_spread=corrects)


def _whole_model_table(path: Path) -> Path | None:
    if path.is_dir():
        return find_table(path, NAME)
    if not path.exists():
        raise InputError(f"{path}: no such file or folder", key=_PATH_KEY)
    if not path.name.endswith((".csv", ".csv.gz")):
        reason = f"{path}: is neither a folder nor a .csv or .csv.gz file"
        raise InputError(reason, key=_PATH_KEY)
    return path


def _layers(config: LayersLatencyConfig, path: Path, model: ModelShape | None) -> LayerComposition:
    reader = _reader(path)
    degrees = (config.tp,) if config.dp == 1 else (config.tp, config.dp)
    if config.dp > 1 and reader is not read_serving_sim:
        raise InputError(_NO_EXPERTS, key=("latency", "dp"))
    times = _read(reader, path, degrees)
    if config.dp > 1 and times.experts is None:
        raise InputError(_NO_EXPERTS, key=("latency", "dp"))
    shape = model or _known_shape(times.model)
    if config.num_layers is None:
        _check_same(times, shape)
    num_layers = config.num_layers or (shape and shape.num_layers)
    if not num_layers:
        measured = f", as the shape of {times.model} is not known" if times.model else ""
        raise InputError(
            f"is required if the scenario names no model{measured}", key=("latency", "num_layers")
        )
    sums = _all_reduce(config, times, shape)
    if sums is None:
        return LayerComposition(times, num_layers)
    return LayerComposition(
        times,
        num_layers,
        replace(sums, num_devices=config.tp) if config.tp > 1 else None,
        replace(sums, num_devices=config.dp) if config.dp > 1 else None,
    )


def _reader(folder: Path) -> _Reader:
    if is_serving_sim(folder):
        return read_serving_sim
    if find_table(folder, "dense.csv"):
        parent = folder.resolve().parent.name
        raise InputError(
            f"{folder}: is one of the folders tpN of a profile; give the folder above it, {parent},"
            " and latency.tp",
            key=_PATH_KEY,
        )
    if is_vidur(folder):
        return read_vidur
    raise InputError(
        f"{folder}: has neither meta.yaml (LLMServingSim), mlp.csv and attention.csv (Vidur) nor"
        f" {NAME} (Splitwise)",
        key=_PATH_KEY,
    )


def _read(reader: _Reader, folder: Path, degrees: tuple[int, ...]) -> LayerTimes:
    """Read a table. As that is slow, replicas share the result until a file changes."""
    found = (path for part in ("*", "tp1/*", f"tp{degrees[0]}/*") for path in folder.glob(part))
    files = sorted({path for path in found if path.is_file()})
    stamps = tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files)
    return _read_kept(reader, folder, degrees, stamps)


@lru_cache(maxsize=4)
def _read_kept(
    reader: _Reader,
    folder: Path,
    degrees: tuple[int, ...],
    _stamps: tuple[tuple[str, int, int], ...],
) -> LayerTimes:
    return reader(folder, *degrees)


def _known_shape(name: str | None) -> ModelShape | None:
    """The shape of a model by its Hugging Face name; None if the packaged table lacks it."""
    if name is None:
        return None
    known = name.rpartition("/")[2].lower().removesuffix(_FINETUNED)
    config = model_table().get(known)
    return None if config is None else shape_of_config(known, config, where=f"model {known}")


def _check_same(times: LayerTimes, shape: ModelShape | None) -> None:
    """Raise InputError if the table says that its layers are of another model."""
    if shape is None:
        return
    measured = _known_shape(times.model)
    if measured is not None and _sizes(measured) != _sizes(shape):
        raise InputError(
            f"has layers of {times.model}, the scenario's model is {shape.name}", key=_PATH_KEY
        )
    if times.hidden_size is not None and times.hidden_size != shape.hidden_size:
        raise InputError(
            f"has layers of hidden size {times.hidden_size}, the scenario's model {shape.name}"
            f" has {shape.hidden_size}",
            key=_PATH_KEY,
        )


def _sizes(shape: ModelShape) -> tuple[int, ...]:
    heads = shape.num_heads, shape.num_kv_heads, shape.head_dim
    return (shape.num_layers, shape.hidden_size, *heads, shape.intermediate_size)


def _check_spread(config: LayersLatencyConfig, *, known: bool) -> None:
    if config.spread_correction and not known:
        reason = "needs a table with a skew_fit; this one has none"
        raise InputError(reason, key=("latency", "spread_correction"))


def _all_reduce(
    config: LayersLatencyConfig, times: LayerTimes, shape: ModelShape | None
) -> AllReduce | None:
    if config.tp == config.dp == 1:
        reason = "needs latency.tp or latency.dp above 1: one device has no all-reduce"
        _refuse(config, _FOR_LAYERS[1:], reason)
        return None
    parallel = "tp" if config.tp > 1 else "dp"
    latency_s, gb_per_s = config.all_reduce_latency_s, config.all_reduce_gb_s
    if latency_s is None or gb_per_s is None:
        key = "all_reduce_latency_s" if latency_s is None else "all_reduce_gb_s"
        raise InputError(
            f"is required with latency.{parallel} above 1, as the tables have no times of"
            " all-reduces (0: they take no time)",
            key=("latency", key),
        )
    hidden_size = times.hidden_size or (shape and shape.hidden_size)
    if gb_per_s and not hidden_size:
        reason = "needs the scenario's model, for its hidden size"
        raise InputError(reason, key=("latency", "all_reduce_gb_s"))
    return AllReduce(config.tp, latency_s, gb_per_s, hidden_size or 0)


def _host_times(config: LayersLatencyConfig, base_dir: Path) -> HostTimes:
    if config.host is None:
        return HostTimes(config.host_s, config.host_per_request_s)
    _refuse(config, ("host_s", "host_per_request_s"), "must not be given with latency.host")
    return read_host_times(located(base_dir, config.host))


def _refuse(config: LayersLatencyConfig, keys: tuple[str, ...], reason: str) -> None:
    for key in keys:
        if key in config.model_fields_set and getattr(config, key) is not None:
            raise InputError(reason, key=("latency", key))
