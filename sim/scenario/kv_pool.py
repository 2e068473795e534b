"""The size of a scenario's KV pool: as given, or as fits beside the weights.

A drafter takes memory beside the model: its weights, and KV for its layers. vLLM loads it before it
measures what is left, and its layers are among those that the pool has KV for (0.33.0: `load_model`
and `get_kv_cache_spec` of v1/worker/gpu_model_runner.py).
"""

from typing import TYPE_CHECKING, NamedTuple

from sim.core.errors import InputError
from sim.engine.server_config import ServerConfig
from sim.families import family_named
from sim.family.section import MemoryForKv
from sim.latency.config import AiconfiguratorLatencyConfig, LatencyConfig, parallelism
from sim.latency.kv_memory import kv_bytes, pool_tokens, weight_bytes_on_gpu
from sim.scenario.kv_sizes import (
    ServedModel,
    latency_section,
    rank_section,
    with_drafter,
    with_kv_format,
)
from sim.user.objects import names_class

if TYPE_CHECKING:
    from sim.latency.aiconfigurator.kv_pool import GpuMemory


def size_of_pool(served: ServedModel) -> int:
    """The pool size: as given, or the whole pages that fit beside the weights, in tokens.

    Raises InputError: the model does not fit into its GPUs, also if the size is given; or nothing
    says what fits.
    """
    section, latency = served.scenario.scheduler, latency_section(served.scenario)
    if section.pool_tokens is not None:
        _refuse_too_large(served, latency)
        return section.pool_tokens
    if isinstance(latency, AiconfiguratorLatencyConfig):
        tokens = _measured_pool(served, latency)
    else:
        tokens = _computed_pool(served)
    pages = tokens // section.page_size - section.num_pages_kept_back
    if pages < 1:
        raise InputError(_too_large(served, _memory_used(served, latency)), key=("model",))
    return pages * section.page_size


def _measured_pool(served: ServedModel, latency: AiconfiguratorLatencyConfig) -> int:
    """The tokens that fit by aiconfigurator-core's count of memory."""
    model = served.model
    memory = _measured_memory(served, latency)
    if model is not None:
        model = with_drafter(model, served.drafter(model))
    tokens = rank_section(served.scenario).tokens_in(model, _memory_left(memory, latency))
    return memory.pool_tokens if tokens is None else tokens


def _computed_pool(served: ServedModel) -> int:
    """The tokens that fit by the shape of the model."""
    section, model, hardware = served.scenario.scheduler, served.model, served.hardware
    key = ("scheduler", section.pool_key)
    memory = memory_for_kv(served, key)
    if model is None or hardware is None:
        raise InputError("is required without model and hardware", key=key)
    model = with_drafter(model, served.drafter(model))
    tokens = section.tokens_in(model, memory)
    if tokens is not None:
        return tokens
    stages = memory.num_stages
    return pool_tokens(
        model,
        int(hardware.memory_bytes * section.memory_share[1]),
        memory.tp,
        max_rows=section.max_rows,
        window_share=section.window_share(model),
        layers=section.stage_layers(model.num_layers, stages) if stages > 1 else (),
    )


def _refuse_too_large(served: ServedModel, latency: LatencyConfig) -> None:
    """Refuse a model whose weights alone are larger than the GPU, if that is known.

    A latency without `tp`, such as a formula, does not say how many GPUs share the model, and a
    family of the user's need not say how its memory is shared.
    """
    if names_class(served.scenario.scheduler.family):
        return
    is_computed = served.model is not None and served.hardware is not None
    is_spread = is_computed and hasattr(latency, "tp")
    if isinstance(latency, AiconfiguratorLatencyConfig) or is_spread:
        used = _memory_used(served, latency)
        if used.weights_bytes >= used.budget_bytes / served.scenario.scheduler.memory_share[1]:
            raise InputError(_too_large(served, used), key=("model",))


class _MemoryUsed(NamedTuple):
    """Bytes on each GPU: for weights, for what else the engine keeps, and for these and KV."""

    weights_bytes: float
    reserved_bytes: float
    budget_bytes: float
    gpu: str


def _memory_used(served: ServedModel, latency: LatencyConfig) -> _MemoryUsed:
    """What weights take of a GPU's memory.

    Raises InputError: neither operators were measured, nor are both model and GPU known.
    """
    if isinstance(latency, AiconfiguratorLatencyConfig):
        memory = _measured_memory(served, latency)
        sizes = memory.weights_bytes, memory.reserved_bytes, memory.budget_bytes
        return _MemoryUsed(*sizes, latency.system)
    model, hardware, spread = served.model, served.hardware, parallelism(latency)
    if model is None or hardware is None:
        raise InputError("is required without model and hardware", key=("scheduler",))
    model = with_drafter(model, served.drafter(model))
    weights = weight_bytes_on_gpu(model, spread.tp, dp=spread.dp) / spread.pp
    budget = hardware.memory_bytes * served.scenario.scheduler.memory_share[1]
    return _MemoryUsed(weights, 0, budget, hardware.name)


def _too_large(served: ServedModel, used: _MemoryUsed) -> str:
    """That a model does not fit, and with which `tp` it does."""
    scenario, spread = served.scenario, parallelism(served.scenario.latency)
    key, share = scenario.scheduler.memory_share
    name = served.model.name if served.model is not None else scenario.model
    taken = f"{name} does not fit: its weights take {_gib(used.weights_bytes)}"
    if used.reserved_bytes:
        taken += f" and the engine {_gib(used.reserved_bytes)}"
    left = f"{_gib(used.budget_bytes)} that {key} {share} of {_gib(used.budget_bytes / share)}"
    gpus = used.gpu
    if spread.num_gpus > 1:
        degrees = {"tp": spread.tp, "dp": spread.dp, "pp": spread.pp}
        product = " x ".join(name for name, degree in degrees.items() if degree > 1)
        gpus = f"each of {spread.num_gpus} {gpus} ({product})"
    fitting = _fitting_tp(served, used)
    hint = "" if fitting is None else f"; latency.tp {fitting} fits"
    return f"{taken} of the {left} leaves on {gpus}{hint}"


_MOST_TP = 64
# Of the memory for weights and KV, what weights may take at most, so that some is left for KV.
_MOST_WEIGHTS = 0.97


def _fitting_tp(served: ServedModel, used: _MemoryUsed) -> int | None:
    """The smallest `tp`, a power of two, with which the weights fit; None: none is known."""
    latency, model = served.scenario.latency, served.model
    free = used.budget_bytes * _MOST_WEIGHTS - used.reserved_bytes
    is_reason = 0 < free < used.weights_bytes
    spread = parallelism(latency)
    if model is None or not hasattr(latency, "tp") or spread.dp > 1 or not is_reason:
        return None
    tp = 1 << int(spread.tp * used.weights_bytes / free).bit_length()
    try:
        model.check_tp(tp)
    except InputError:
        return None
    return tp if tp <= _MOST_TP else None


def memory_for_kv(served: ServedModel, key: tuple[str, ...]) -> MemoryForKv:
    """What the weights, and a drafter's, leave on a GPU; an error is about `key`."""
    section, latency = served.scenario.scheduler, latency_section(served.scenario)
    if isinstance(latency, AiconfiguratorLatencyConfig):
        return _memory_left(_measured_memory(served, latency), latency)
    model, hardware = served.model, served.hardware
    must = "is required" if key[-1] == section.pool_key else "must be a number"
    if model is None or hardware is None:
        raise InputError(f"{must} without model and hardware", key=key)
    if parallelism(latency).dp > 1:
        raise InputError(f"{must} with latency.dp above 1", key=key)
    tp = parallelism(latency).tp
    model.check_tp(tp)
    model = with_drafter(model, served.drafter(model))
    budget_bytes = int(hardware.memory_bytes * section.memory_share[1])
    return MemoryForKv(budget_bytes - weight_bytes_on_gpu(model, tp), tp, parallelism(latency).pp)


def _memory_left(memory: "GpuMemory", latency: AiconfiguratorLatencyConfig) -> MemoryForKv:
    num_bytes = memory.budget_bytes - memory.weights_bytes - memory.reserved_bytes
    return MemoryForKv(num_bytes, latency.tp, parallelism(latency).pp)


def _measured_memory(served: ServedModel, latency: AiconfiguratorLatencyConfig) -> "GpuMemory":
    """The memory of a GPU, by aiconfigurator-core's count of what the engine keeps there."""
    from sim.latency.aiconfigurator.kv_pool import memory_for_kv as measured_memory

    section, model = rank_section(served.scenario), served.model
    return measured_memory(
        served.deployment(latency),
        section.memory_share[1],
        max_step_tokens=section.max_step_tokens,
        max_rows=section.max_rows,
        split_layers=section.stage_layers,
        shape=model,
        drafter=None if model is None else served.drafter(model),
    )


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"


class KvPool(NamedTuple):
    """The KV pool of each server, or of each of its ranks, as a summary has it.

    Attributes:
        printed: its size in the words that the engine prints when it starts.
        tokens, pages: with those that the engine keeps for itself.
        page_size: tokens in a page.
        gib_per_gpu: None: the model is not known, or its layers do not all keep every token.
        source: what its size follows from.
    """

    printed: str
    tokens: int
    pages: int
    page_size: int
    gib_per_gpu: float | None
    ranks: int
    source: str


def kv_pool(served: ServedModel, config: ServerConfig) -> KvPool:
    """The pool of servers with these settings, made of the scenario by `size_of_pool`."""
    section, latency = served.scenario.scheduler, served.scenario.latency
    page_size = config.page_size
    pages = config.pool_tokens // page_size + section.num_pages_kept_back
    tokens = pages * page_size
    if section.pool_tokens is not None:
        source = f"scheduler.{section.pool_key}"
    else:
        system = getattr(latency, "system", served.scenario.hardware)
        key, share = section.memory_share
        source = f"what {key} {share} of the memory of {system} leaves"
    per_token = _bytes_per_token(served)
    gib = None if per_token is None else tokens * per_token / 2**30
    printed = family_named(section.family).printed_pool(tokens)
    return KvPool(printed, tokens, pages, page_size, gib, parallelism(latency).dp, source)


def _bytes_per_token(served: ServedModel) -> float | None:
    """Bytes of a token on a GPU of the stage with the most layers, if all layers keep it."""
    if served.model is None:
        return None
    model = with_kv_format(served.scenario, served.model)
    spread = parallelism(served.scenario.latency)
    sizes = kv_bytes(with_drafter(model, served.drafter(model)), spread.tp)
    if sizes.windows or sizes.per_request:
        return None
    per_token = sizes.per_token / spread.tp
    if spread.pp == 1:
        return per_token
    layers = served.scenario.scheduler.stage_layers(model.num_layers, spread.pp)
    return per_token * max(layers) / model.num_layers
