"""Measured operator times from the package aiconfigurator-core, an optional extra.

Only this module imports the package, and only for scenarios that ask for it, as it is 110 MB large.
It follows version 0.12. The package's own model classes (`sdk.models`) list the operators of a
step, so that a new version of it brings new models; its compiled engine (`sdk.engine.EngineHandle`)
gives the time of any of these operators at any size. No network is used.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from sim.core.errors import InputError
from sim.extras import how_to_install
from sim.latency.aiconfigurator.deployment import (
    ModelDeployment,
    known_format,
    known_version,
    reason_of,
    share_of_narrow,
    spreads_around,
    what_there_is,
)
from sim.latency.aiconfigurator.operators import (
    Compiled,
    NoDataError,
    PackageEngine,
    has_latent_attention,
)
from sim.latency.config import Parallelism

_DISTRIBUTION = "aiconfigurator-core"
_PACKAGE_ERRORS = (AssertionError, RuntimeError, ValueError, KeyError, NotImplementedError)

# The package's argument, and its class of number formats, for each kind of operator.
_QUANTIZATION: Mapping[str, tuple[str, str]] = {
    "gemm": ("gemm_quant_mode", "GEMMQuantMode"),
    "moe": ("moe_quant_mode", "MoEQuantMode"),
    "attention": ("fmha_quant_mode", "FMHAQuantMode"),
    "kv_cache": ("kvcache_quant_mode", "KVCacheQuantMode"),
}

# Number formats to take for lack of data, one after another.
_SUBSTITUTES: Mapping[str, Sequence[Mapping[str, str]]] = {
    "none": ({}, {"attention": "bfloat16"}, {"attention": "bfloat16", "kv_cache": "bfloat16"}),
    "deepep": ({}, {"attention": "fp8_block"}, {"attention": "fp8_block", "moe": "fp8_block"}),
}
# Sweeps and searches come back to the same deployments.
_KEPT_ENGINES = 64


@lru_cache(maxsize=_KEPT_ENGINES)
def open_engine(deployment: ModelDeployment) -> PackageEngine:
    """The operators of a deployment, with their times. The first call takes two seconds.

    Where the package has no times of attention in 8 bits, those in 16 bits are taken, and where
    those of matrix products have the host's launches in them, those of another format
    (`_without_launches`). With DeepEP, where it has none of experts in 4 bits, those in 8 bits are
    taken, shortened by the package's own ratio of the formats: of bytes or of arithmetic, the
    smaller gain. Where it has none for the number of GPUs, times are interpolated between the next
    smaller and the next larger number that it has. `source` names each of these substitutes.
    """
    formats = dict(deployment.quantization)
    products = _without_launches(deployment)
    errors = []
    for substitute in _SUBSTITUTES[deployment.moe_a2a_backend]:
        own = deployment._replace(quantization=tuple({**formats, **substitute}.items()))
        wanted = own._replace(quantization=(*own.quantization, *products.items()))
        try:
            scale = _experts_scale(deployment, wanted) if "moe" in substitute else 1.0
            remarks = [f"{kind} in {name}" for kind, name in {**substitute, **products}.items()]
            return _open(wanted, _of_clean_latent_attention(own), remarks, scale)
        except NoDataError as error:
            errors.append(error)
    with naming_what_there_is(deployment):
        raise errors[0]


@contextmanager
def naming_what_there_is(deployment: ModelDeployment) -> Iterator[None]:
    """A context in which a NoDataError becomes an InputError that also says what there is."""
    try:
        yield
    except NoDataError as error:
        from aiconfigurator_core.sdk.common import get_support_matrix

        reason = f"{error.reason}; {what_there_is(deployment, get_support_matrix())}"
        raise InputError(reason, key=error.key) from None


def _without_launches(deployment: ModelDeployment) -> dict[str, str]:
    """The format of matrix products to take in place of a checkpoint's own.

    vLLM's products of weights in blocks of 8 bits were timed with the host's launches: on a B200
    4,096 x 4,096 weights take 175 us for 8 rows and 182 us for 4,096. SGLang's table has 11 and
    59 us for the same kernel. With one scale for each tensor it is 9 and 88 us in vLLM's.
    """
    if deployment.backend != "vllm" or "gemm" in dict(deployment.quantization):
        return {}
    in_blocks = _compile(deployment).model.config.gemm_quant_mode.name == "fp8_block"
    return {"gemm": "fp8"} if in_blocks else {}


def _of_clean_latent_attention(deployment: ModelDeployment) -> ModelDeployment:
    """The deployment whose times of latent attention (MLA) are taken for this one.

    vLLM 0.24's on B300, GB200 and GB300 are 50 us longer than on a B200, and prefills 1.4 times as
    long, with the same kernels. That is how they were measured: GB300's of vLLM 0.27 are B200's
    within 2 us, and in SGLang's tables these GPUs are no slower than a B200.
    """
    if deployment.backend == "vllm" and deployment.system in {"b300_sxm", "gb200", "gb300"}:
        return deployment._replace(system="b200_sxm")
    return deployment


def _experts_scale(deployment: ModelDeployment, substitute: ModelDeployment) -> float:
    """Time of the deployment's experts as a share of the substitute's; at most 1."""
    taken, own = (
        _compile(each).model.config.moe_quant_mode.value for each in (substitute, deployment)
    )
    return float(min(max(own.memory / taken.memory, taken.compute / own.compute), 1.0))


def _open(
    deployment: ModelDeployment,
    latent: ModelDeployment,
    remarks: Sequence[str],
    experts_scale: float,
) -> PackageEngine:
    parts = [f"for lack of data {' and '.join(remarks)}"] if remarks else []
    if experts_scale < 1:
        parts.append(f"experts' times x {experts_scale:.4g}")
    compiled = _compile(deployment)
    latent_handle = None
    if latent != deployment and has_latent_attention(compiled):
        latent_handle = _compile(latent).handle
        if latent.system != deployment.system:
            parts.append(f"latent attention of {latent.system}")
    try:
        return PackageEngine(
            compiled, parts, latent_handle=latent_handle, experts_scale=experts_scale
        )
    except NoDataError:
        if deployment.moe_a2a_backend == "none":
            raise
        around = spreads_around(deployment.parallelism)
        narrow, wide = (_first_with_data(deployment, spreads) for spreads in around)
        if narrow is None or wide is None:
            raise
    (narrow_ep, narrow_handle), (wide_ep, wide_handle) = narrow, wide
    parts.append(f"experts between those of {narrow_ep} and {wide_ep} GPUs")
    share = share_of_narrow(deployment.parallelism.moe_ep, narrow_ep, wide_ep)
    handles = (narrow_handle, share), (wide_handle, 1 - share)
    return PackageEngine(compiled, parts, handles, experts_scale=experts_scale)


def _first_with_data(
    deployment: ModelDeployment, spreads: Iterable[Parallelism]
) -> tuple[int, Any] | None:
    """The first of these with measured times of experts: its number of GPUs, and its engine."""
    for spread in spreads:
        try:
            compiled = _compile(deployment, experts=spread)
            PackageEngine(compiled)
        except InputError:
            continue
        return spread.moe_ep, compiled.handle
    return None


def _compile(deployment: ModelDeployment, *, experts: Parallelism | None = None) -> Compiled:
    package_version = installed_version()
    # It logs warnings about rows taken from other models' tables. What it cannot answer raises.
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
    from aiconfigurator_core.sdk import common, perf_database

    _read_yaml_in_c(perf_database)
    system, backend = deployment.system, deployment.backend
    database_version = known_version(perf_database, system, backend, deployment.version)
    place = f"{_DISTRIBUTION} {package_version} (NVIDIA, Apache-2.0), {system}, {backend}"
    place = f"{place} {database_version}"
    arguments: dict[str, Any] = _sizes(deployment.parallelism)
    for kind, name in deployment.quantization:
        argument, formats = _QUANTIZATION[kind]
        arguments[argument] = known_format(getattr(common, formats).__members__, kind, name)
    with _model_path(deployment) as path:
        try:
            if deployment.moe_a2a_backend == "deepep":
                made = _with_deepep(deployment, path, database_version, arguments, experts)
            else:
                made = _without_deepep(deployment, path, database_version, arguments)
        except _PACKAGE_ERRORS as error:
            reason = f"{place}: {deployment.model}: {reason_of(error, system)}"
            raise InputError(reason, key=("latency",)) from None
    return Compiled(place, system, database_version, arguments, *made)


def _read_yaml_in_c(perf_database: Any) -> None:
    """Let the package read its YAML files with PyYAML's reader in C, if this Python has it.

    The package reads the files of all GPUs for each deployment. Read in Python, they took a quarter
    of a search for deployments.
    """
    yaml = perf_database.yaml
    if getattr(yaml, "__with_libyaml__", False):
        loader = yaml.CSafeLoader
        perf_database.yaml = SimpleNamespace(
            SafeLoader=loader, load=yaml.load, safe_load=partial(yaml.load, Loader=loader)
        )


def _without_deepep(
    deployment: ModelDeployment, path: str, database_version: str, arguments: Mapping[str, Any]
) -> tuple[Any, Any]:
    """The operators of a server, and the engine that knows their times."""
    from aiconfigurator_core.sdk import config_builders, engine, models

    config = config_builders.build_model_config(**arguments)
    num_drafts = deployment.draft_layers
    if num_drafts:
        # The package's MTP: decode steps have the operators of this number of layers more.
        config_builders.apply_nextn(config, num_drafts)
    model = models.get_model(path, config, deployment.backend)
    server = deployment.system, deployment.backend
    handle = engine.EngineHandle.compile(
        path, *server, backend_version=database_version, nextn=num_drafts, **arguments
    )
    return model, handle


def _sizes(parallelism: Parallelism) -> dict[str, int]:
    return {
        "tp_size": parallelism.tp,
        "pp_size": parallelism.pp,
        "attention_dp_size": parallelism.dp,
        "moe_tp_size": parallelism.moe_tp,
        "moe_ep_size": parallelism.moe_ep,
    }


def _with_deepep(
    deployment: ModelDeployment,
    path: str,
    database_version: str,
    arguments: Mapping[str, Any],
    experts: Parallelism | None,
) -> tuple[Any, Any]:
    """The operators of a server with DeepEP, and the engine that knows their times.

    `EngineHandle.compile` does not take the attributes of a configuration that choose these
    operators, so its steps are done here (`compile_engine` in `sdk/engine.py`). With `experts`, the
    arithmetic of the experts is that of another deployment.
    """
    import aiconfigurator_core._aiconfigurator_core as core
    from aiconfigurator_core.sdk import config_builders, engine, models, perf_database

    system, backend = deployment.system, deployment.backend
    database = perf_database.get_database(system, backend, database_version)

    def model_of(sizes: Mapping[str, Any]) -> Any:
        config = config_builders.build_model_config(**sizes)
        config_builders.apply_nextn(config, deployment.draft_layers)
        config.moe_comm_backend = {"context": "deepep_ht", "generation": "deepep_ll"}
        config.num_gpus_per_node = int(database.system_spec["node"]["num_gpus_per_node"])
        config.system = system
        return models.get_model(path, config, backend)

    model = model_of(arguments)
    if not any(operator._name.endswith("_moe_dispatch") for operator in model.generation_ops):
        raise NotImplementedError("the package does not list this model's operators with DeepEP")
    if experts is not None:
        _take_experts(model, model_of({**arguments, **_sizes(experts)}))
    spec = engine.build_engine_spec_json(
        model,
        model_path=path,
        system=system,
        backend=backend,
        backend_version=database_version,
        kv_block_size=None,
        systems_path=None,
        nextn=deployment.draft_layers,
        database=database,
    )
    return model, engine.EngineHandle(bytes(core.engine_spec_bincode_from_json(spec)))


def _take_experts(model: Any, other: Any) -> None:
    """Replace the operators of a model's experts by those of another deployment's."""
    for phase in ("context_ops", "generation_ops"):
        operators, others = getattr(model, phase), getattr(other, phase)
        for place, operator in enumerate(operators):
            if operator._name.endswith("_moe"):
                operators[place] = others[place]


def memory_parts(
    deployment: ModelDeployment, *, max_step_tokens: int, max_rows: int
) -> Mapping[str, float]:
    """What the package says is in a GPU's memory: bytes by the package's names of the parts.

    `max_step_tokens` are those of the largest step, `max_rows` the most sequences at a time.
    """
    engine = open_engine(deployment)
    from aiconfigurator_core.sdk.memory import KVCacheEstimator

    sizes = {"max_num_tokens": max_step_tokens, "max_batch_size": max_rows}
    with _model_path(deployment) as path:
        estimator = KVCacheEstimator.from_request(
            path, deployment.system, deployment.backend, engine.version, **sizes, **engine.arguments
        )
    parts: Mapping[str, float] = estimator.breakdown
    return parts


@contextmanager
def _model_path(deployment: ModelDeployment) -> Iterator[str]:
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
