"""Measured operator times from the package aiconfigurator-core, an optional extra.

Only this module imports the package, and only for scenarios that ask for it, as it is 110 MB large.
It follows version 0.12. The package's own model classes (`sdk.models`) list the operators of a
step, so that a new version of it brings new models; its compiled engine (`sdk.engine.EngineHandle`)
gives the time of any of these operators at any size. No network is used.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sim.core.errors import InputError
from sim.core.messages import unknown_name
from sim.extras import how_to_install
from sim.latency.aiconfigurator.deployment import Deployment, Parallelism
from sim.latency.aiconfigurator.operators import DECODE_PROBE, PREFILL_PROBE, OperatorList, Probe
from sim.latency.aiconfigurator.refusals import reason_of, what_there_is
from sim.latency.kv_bytes import KvBytes
from sim.latency.kv_pool import activation_bytes, stage_weight_bytes, weight_bytes_on_gpu
from sim.latency.shapes import ModelShape
from sim.latency.stages import SplitLayers

_DISTRIBUTION = "aiconfigurator-core"
_PACKAGE_ERRORS = (AssertionError, RuntimeError, ValueError, KeyError, NotImplementedError)

# The package's argument, and its class of number formats, for each kind of operator.
_QUANTIZATION: Mapping[str, tuple[str, str]] = {
    "gemm": ("gemm_quant_mode", "GEMMQuantMode"),
    "moe": ("moe_quant_mode", "MoEQuantMode"),
    "attention": ("fmha_quant_mode", "FMHAQuantMode"),
    "kv_cache": ("kvcache_quant_mode", "KVCacheQuantMode"),
}


class PackageEngine:
    """The operators of one deployment, and their times. It has no state: replicas share one."""

    def __init__(
        self,
        source: str,
        system: str,
        version: str,
        arguments: Mapping[str, Any],
        model: Any,
        handle: Any,
    ) -> None:
        self.source = source
        self.system = system
        self.version = version
        self.arguments = arguments
        self.model = model
        self.num_layers = int(model._num_layers)
        self.prefill = self._operators(
            model.context_ops, handle.evaluate_context_ops, PREFILL_PROBE
        )
        self.decode = self._operators(
            model.generation_ops, handle.evaluate_generation_ops, DECODE_PROBE
        )

    def _operators(
        self, operators: Any, evaluate: Callable[..., Any], probe: Probe
    ) -> OperatorList:
        def time_ms(
            places: list[int], num_rows: int, num_tokens: int, prefix: int = 0, x: int = 0
        ) -> float:
            try:
                times = evaluate(
                    places, batch_size=num_rows, s=num_tokens, prefix=prefix, x=x or None
                )
            except (RuntimeError, ValueError) as error:
                reason = f"{self.source}: no data: {reason_of(error, self.system)}"
                raise NoDataError(reason, key=("latency",)) from None
            return float(sum(operator_ms for _, operator_ms, _, _ in times))

        names = [operator._name for operator in operators]
        num_ranks = self.arguments.get("attention_dp_size", 1)
        # The list of vLLM's latent attention has all all-reduces of a layer in this operator, and
        # counts them once more before and after the experts (version 0.12).
        counted_twice = [name for name in names if name.endswith("_tp_allreduce")]
        return OperatorList(
            names,
            time_ms,
            probe,
            num_ranks=num_ranks,
            left_out=counted_twice if num_ranks == 1 else (),
        )


# Sweeps and searches come back to the same deployments.
_KEPT_ENGINES = 64
# Tokens of a short sequence: no sliding window is full yet.
_SHORT = 64


@lru_cache(maxsize=_KEPT_ENGINES)
def open_engine(deployment: Deployment) -> PackageEngine:
    """The operators of a deployment, with their times. The first one takes two seconds.

    Where the package has no times of attention in 8 bits, those in 16 bits are taken; then `source`
    says so.

    Raises:
        InputError: the package is absent, or has no such system, backend, version, model or number
            format, or the model cannot be spread over the GPUs in this way.
    """
    formats = dict(deployment.quantization)
    substitutes: list[Mapping[str, str]] = [
        {},
        {"attention": "bfloat16"},
        {"attention": "bfloat16", "kv_cache": "bfloat16"},
    ]
    errors = []
    for substitute in substitutes:
        wanted = deployment._replace(quantization=tuple({**formats, **substitute}.items()))
        try:
            return _open(wanted, [f"{kind} in {name}" for kind, name in substitute.items()])
        except NoDataError as error:
            errors.append(error)
    with naming_what_there_is(deployment):
        raise errors[0]


class NoDataError(InputError):
    """The package has no times of an operator."""


@contextmanager
def naming_what_there_is(deployment: Deployment) -> Iterator[None]:
    """A context that adds to a NoDataError for what the package has times."""
    try:
        yield
    except NoDataError as error:
        from aiconfigurator_core.sdk.common import get_support_matrix

        reason = f"{error.reason}; {what_there_is(deployment, get_support_matrix())}"
        raise InputError(reason, key=error.key) from None


def _open(deployment: Deployment, remarks: Sequence[str]) -> PackageEngine:
    package_version = installed_version()
    # It logs warnings about rows taken from other models' tables. What it cannot answer raises.
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
    from aiconfigurator_core.sdk import common, config_builders, engine, models, perf_database

    system, backend, parallelism = deployment.system, deployment.backend, deployment.parallelism
    database_version = _known_version(perf_database, system, backend, deployment.version)
    place = f"{_DISTRIBUTION} {package_version} (NVIDIA, Apache-2.0), {system}, {backend}"
    place = f"{place} {database_version}"
    arguments: dict[str, Any] = {
        "tp_size": parallelism.tp,
        "pp_size": parallelism.pp,
        "attention_dp_size": parallelism.dp,
        "moe_tp_size": parallelism.moe_tp,
        "moe_ep_size": parallelism.moe_ep,
    }
    for kind, name in deployment.quantization:
        arguments[_QUANTIZATION[kind][0]] = _known_format(common, kind, name)
    with _model_path(deployment) as path:
        try:
            config = config_builders.build_model_config(**arguments)
            if deployment.draft_layers:
                # The package's MTP: decode steps have the operators of this number of layers more.
                config_builders.apply_nextn(config, deployment.draft_layers)
            model = models.get_model(path, config, backend)
            handle = engine.EngineHandle.compile(
                path,
                system,
                backend,
                backend_version=database_version,
                nextn=deployment.draft_layers,
                **arguments,
            )
        except _PACKAGE_ERRORS as error:
            reason = f"{place}: {deployment.model}: {reason_of(error, system)}"
            raise InputError(reason, key=("latency",)) from None
    substituted = f"; for lack of data {' and '.join(remarks)}" if remarks else ""
    source = place + substituted
    return PackageEngine(source, system, database_version, arguments, model, handle)


class Room(NamedTuple):
    """What a GPU's memory has room for.

    Attributes:
        pool_tokens: KV tokens of one rank; negative if even the weights do not fit.
        budget_bytes: for weights, KV and what the engine reserves before it sizes its pool.
        weights_bytes, reserved_bytes: what these weights and the engine take.
    """

    pool_tokens: int
    budget_bytes: float
    weights_bytes: float
    reserved_bytes: float


def kv_room(
    deployment: Deployment,
    memory_share: float,
    *,
    max_step_tokens: int,
    max_rows: int,
    split_layers: SplitLayers,
    shape: ModelShape | None = None,
    drafter: ModelShape | None = None,
) -> Room:
    """How many KV tokens fit beside what the package says the engine keeps in memory.

    SGLang sizes the pool before it reserves memory for activations, which must fit into the rest
    (`model_runner_kv_cache_mixin.py` of 0.5.9). vLLM measures the activations of the largest step
    first (`gpu_worker.py` of 0.19). The stage of a pipeline that has room for the fewest tokens
    decides, as in both engines.

    Args:
        deployment: the model on its GPUs.
        memory_share: of a GPU's memory, for weights and KV, as the engine's flag says.
        max_step_tokens: of the largest step.
        max_rows: sequences at a time; each has a state of its own in models with linear attention.
        split_layers: gives the layers of each stage of a pipeline.
        shape: the model, for bytes of activations, and of weights in the checkpoint's own formats.
            Otherwise the package's estimates are taken. They count the first layers of some models
            as layers with experts, and for vLLM a workspace of TensorRT-LLM.
        drafter: what drafts beside the model; pipelines have none.
    """
    engine = open_engine(deployment)
    from aiconfigurator_core.sdk.memory import KVCacheEstimator

    with _model_path(deployment) as path:
        estimator = KVCacheEstimator.from_request(
            path,
            deployment.system,
            deployment.backend,
            engine.version,
            max_num_tokens=max_step_tokens,
            max_batch_size=max_rows,
            **engine.arguments,
        )
    parts = estimator.breakdown
    activations = parts["activations_bytes"]
    if shape is not None:
        activations = activation_bytes(shape, max_step_tokens, max_rows, deployment.parallelism.tp)
        if {"gemm", "moe"} & dict(deployment.quantization).keys():
            shape = None
    budget = parts["gpu_memory_capacity_bytes"] - parts["comm_overhead_bytes"]
    budget, reserved = budget * memory_share, 0.0
    if deployment.backend != "sglang":
        reserved = activations + parts["runtime_overhead_bytes"]
    first, short = (engine.model.get_kvcache_bytes_per_sequence(n) for n in (1, 1 + _SHORT))
    per_token = (short - first) / _SHORT
    kept = (first - per_token) * max_rows
    layers = split_layers(engine.num_layers, deployment.parallelism.pp)
    weights = _weights(engine, shape, deployment.parallelism, parts["weights_bytes"], layers)
    if drafter is not None:
        spread = deployment.parallelism
        per_token += drafter.kv_bytes_on_gpu(spread.tp)
        weights = [each + weight_bytes_on_gpu(drafter, spread.tp, dp=spread.dp) for each in weights]
    rooms = []
    for in_weights, num_layers in zip(weights, layers, strict=True):
        # The package counts the KV of all layers.
        share = num_layers / engine.num_layers
        tokens = (budget - in_weights - reserved - kept * share) // (per_token * share)
        rooms.append(Room(int(tokens), budget, in_weights, reserved))
    return min(rooms, key=lambda room: room.pool_tokens)


def measured_kv_bytes(deployment: Deployment) -> KvBytes:
    """The bytes of a request's KV on its way to a rank, as the package counts them.

    This is for models that no `ModelShape` describes. Bytes that do not grow with the length of a
    short prompt are those of states. A window is not told from them.
    """
    model, tp = open_engine(deployment).model, deployment.parallelism.tp
    first, short = (model.get_kvcache_bytes_per_sequence(n) for n in (1, 1 + _SHORT))
    per_token = (short - first) / _SHORT
    return KvBytes(round(per_token * tp), round((first - per_token) * tp))


def _weights(
    engine: PackageEngine,
    shape: ModelShape | None,
    parallelism: Parallelism,
    estimated: float,
    layers: Sequence[int],
) -> Sequence[float]:
    """Bytes of weights on a GPU of each stage: by the shape, or the package's estimate.

    The package estimates an average stage.
    """
    tp, num_stages = parallelism.tp, len(layers)
    if num_stages == 1:
        own = estimated if shape is None else weight_bytes_on_gpu(shape, tp, dp=parallelism.dp)
        return [own]
    if shape is not None:
        return stage_weight_bytes(shape, tp, layers)
    embedding, head = (
        sum(op.get_weights() for op in engine.model.context_ops if name in op._name)
        for name in ("embedding", "logits")
    )
    of_layer = (estimated * num_stages - embedding - head) / engine.num_layers
    weights = [of_layer * num_layers for num_layers in layers]
    weights[0] += embedding
    weights[-1] += head
    return weights


@contextmanager
def _model_path(deployment: Deployment) -> Iterator[str]:
    """What the package takes as a model: an id that it knows, or a folder with a config.json."""
    if deployment.config is None:
        yield deployment.model
        return
    with TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(deployment.config, encoding="utf-8")
        yield folder


def known_models() -> frozenset[str]:
    """Hugging Face ids whose config.json comes with the package; empty without the package."""
    try:
        installed_version()
    except InputError:
        return frozenset()
    from aiconfigurator_core.sdk.common import DefaultHFModels

    return frozenset(DefaultHFModels)


def installed_version() -> str:
    """The package's version. Raises InputError, with how to install it, if it is absent."""
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        raise InputError(
            f"kind aiconfigurator needs the package {_DISTRIBUTION}:"
            f" {how_to_install('aiconfigurator')}",
            key=("latency",),
        ) from None


def _known_format(common: Any, kind: str, name: str) -> str:
    formats = getattr(common, _QUANTIZATION[kind][1]).__members__
    if name not in formats:
        reason = unknown_name("number format", name, formats)
        raise InputError(reason, key=("latency", "quantization", kind))
    return name


def _known_version(
    perf_database: Any, system: str, backend: str, wanted_version: str | None
) -> str:
    """The version to open. An error about an unknown name says which names there are."""
    versions: dict[str, str] | None = perf_database.get_version_slots(system, backend)
    if versions is None:
        supported = perf_database.get_supported_databases()
        if system not in supported:
            reason = unknown_name("system", system, supported)
            raise InputError(reason, key=("latency", "system"))
        reason = unknown_name(f"backend on {system}", backend, supported[system])
        raise InputError(reason, key=("latency", "backend"))
    if wanted_version is None:
        return versions["current"]
    if wanted_version not in versions.values():
        what = f"version of {backend} on {system}"
        reason = unknown_name(what, wanted_version, versions.values())
        raise InputError(reason, key=("latency", "version"))
    return wanted_version
