"""The shapes of what a scenario names, and the sizes of its KV pool and of a request's transfer.

A pool is as large as given, or as fits beside the weights. A drafter takes memory beside the model:
its weights, and KV for its layers. vLLM loads it before it measures what is left, and its layers
are among those that the pool has KV for (0.33.0: `load_model` and `get_kv_cache_spec` of
v1/worker/gpu_model_runner.py).
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sim.core.errors import InputError
from sim.engine.server_config import ServerConfig
from sim.families import family_named
from sim.family.section import Drafts, MemoryForKv, ServerSection
from sim.latency.config import AiconfiguratorLatencyConfig, LatencyConfig, parallelism
from sim.latency.kv_memory import KvBytes, kv_bytes, pool_tokens, weight_bytes_on_gpu
from sim.scenario.schema import Scenario
from sim.scenario.servers_section import TransferSection

if TYPE_CHECKING:
    from sim.latency.aiconfigurator.deployment import ModelDeployment
    from sim.latency.aiconfigurator.kv_pool import GpuMemory
    from sim.latency.hardware import Hardware
    from sim.latency.shapes import ModelShape

# Bytes of an element of the KV cache, by number format.
KV_ELEMENT_BYTES = {"bfloat16": 2, "fp8": 1}
# Without a name, the layers that draft are in the model's own checkpoint.
_OWN_LAYERS = ("mtp", "NEXTN")


def load_shapes(scenario: Scenario, base_dir: Path) -> "tuple[ModelShape | None, Hardware | None]":
    """The model and hardware a scenario names.

    The operators of kind aiconfigurator need no `ModelShape`, and there are models that none
    describes: with that kind the model may be None.
    """
    if scenario.model is None and scenario.hardware is None:
        return None, None
    from sim.latency.architectures.model_key import find_model, shape_if_described, shape_of
    from sim.latency.hardware import check_system, load_hardware

    section = scenario.latency
    hardware = None if scenario.hardware is None else load_hardware(scenario.hardware)
    if hardware is not None and isinstance(section, AiconfiguratorLatencyConfig):
        check_system(hardware, section.system)
    if scenario.model is None:
        return None, hardware
    found = find_model(scenario.model, base_dir)
    if isinstance(section, AiconfiguratorLatencyConfig):
        model = shape_if_described(found)
        if model is not None:
            model.check_tp(section.tp)
            may_copy = section.moe_a2a_backend == "deepep"
            model.check_experts(section.moe_ep, may_copy=may_copy)
    else:
        model = shape_of(found)
    kv_format = scenario.scheduler.kv_cache_format
    if model is not None and kv_format is not None:
        model = replace(model, kv_element_bytes=KV_ELEMENT_BYTES[kv_format])
    state_bytes = scenario.scheduler.state_element_bytes
    if model is not None and state_bytes is not None:
        model = model.with_state_elements(state_bytes)
    return model, hardware


def drafter_of(drafts: Drafts | None, model: "ModelShape", base_dir: Path) -> "ModelShape | None":
    """The drafter, as far as its sizes are known; None: it takes no memory, or is not known.

    A small model is counted whole. Layers that draft use the model's embedding and output head.
    Without a name, those of methods `mtp` and `NEXTN` are the model's own: one layer more, like its
    last one.
    """
    if drafts is None or drafts.drafter == "nothing":
        return None
    if drafts.model is not None:
        named = _named(drafts.model, base_dir, drafts.model_key)
        if named is None:
            return None
        named = replace(named, kv_element_bytes=model.kv_element_bytes)
        return named if drafts.drafter == "model" else _layers_only(named)
    if drafts.method not in _OWN_LAYERS:
        return None
    from sim.latency.shapes import Matrices

    last = model.layers[-1]
    projection = Matrices(2 * model.hidden_size**2)
    layer = replace(last, count=1, matrices=(*last.matrices, projection))
    return replace(_layers_only(model), layers=(layer,))


def with_drafter(model: "ModelShape", drafter: "ModelShape | None") -> "ModelShape":
    """A model that takes as much memory as both: its layers are those of both."""
    if drafter is None:
        return model
    tables = drafter.vocab_size * drafter.hidden_size * (2 - drafter.tie_word_embeddings)
    return replace(
        model,
        layers=(*model.layers, *drafter.layers),
        num_other_parameters=model.num_other_parameters + drafter.num_other_parameters + tables,
    )


def _layers_only(shape: "ModelShape") -> "ModelShape":
    return replace(shape, vocab_size=0, tie_word_embeddings=True, num_other_parameters=0)


def _named(key: str, base_dir: Path, model_key: tuple[str, ...]) -> "ModelShape | None":
    """The shape of a drafter; None for an id that is not known here."""
    from sim.latency.architectures.model_key import find_model, shape_of

    try:
        return shape_of(find_model(key, base_dir))
    except InputError as error:
        if key.endswith(".json") or key.startswith((".", "/")):
            raise InputError(error.reason if error.key else str(error), key=model_key) from None
        return None


def latency_section(scenario: Scenario) -> LatencyConfig:
    """The section `latency`, with the number format of the KV cache that the scheduler's gives."""
    section, kv_format = scenario.latency, scenario.scheduler.kv_cache_format
    if not isinstance(section, AiconfiguratorLatencyConfig) or kv_format is None:
        return section
    given = section.quantization.kv_cache
    if given not in (None, kv_format):
        reason = f"is {given}, but scheduler.kv_cache_dtype says {kv_format}: give one of them"
        raise InputError(reason, key=("latency", "quantization", "kv_cache"))
    formats = section.quantization.model_copy(update={"kv_cache": kv_format})
    return section.model_copy(update={"quantization": formats})


def rank_section(scenario: Scenario) -> ServerSection:
    """The section `scheduler`; with several ranks, what it means for each."""
    ranks = parallelism(scenario.latency).dp
    return scenario.scheduler if ranks == 1 else scenario.scheduler.of_rank(ranks)


class ServedModel(NamedTuple):
    """A scenario, and the shapes of its model and its accelerator, as far as they are known."""

    scenario: Scenario
    model: "ModelShape | None"
    hardware: "Hardware | None"
    base_dir: Path

    @classmethod
    def of(cls, scenario: Scenario, base_dir: Path) -> "ServedModel":
        return cls(scenario, *load_shapes(scenario, base_dir), base_dir)

    def drafter(self, model: "ModelShape") -> "ModelShape | None":
        return drafter_of(self.scenario.scheduler.drafts, model, self.base_dir)

    def deployment(self, latency: AiconfiguratorLatencyConfig) -> "ModelDeployment":
        """The model on its GPUs, as aiconfigurator-core describes it."""
        from sim.latency.aiconfigurator.deployment import deployment_of
        from sim.latency.aiconfigurator.package import known_models

        if self.scenario.model is None:
            raise InputError(f"kind {latency.kind} needs the scenario's model", key=("latency",))
        return deployment_of(latency, self.scenario.model, self.base_dir, known_models())


def size_of_pool(served: ServedModel) -> int:
    """The pool size: as given, or the whole pages that fit beside the weights, in tokens."""
    section = served.scenario.scheduler
    if section.pool_tokens is not None:
        return section.pool_tokens
    latency = latency_section(served.scenario)
    if isinstance(latency, AiconfiguratorLatencyConfig):
        tokens, too_large = _measured_pool(served, latency)
    else:
        tokens, too_large = _computed_pool(served)
    pages = tokens // section.page_size - section.num_pages_kept_back
    if pages < 1:
        raise InputError(too_large, key=("model",))
    return pages * section.page_size


def _measured_pool(served: ServedModel, latency: AiconfiguratorLatencyConfig) -> tuple[int, str]:
    """The tokens that fit by aiconfigurator-core's count of memory, and why too few may fit."""
    scenario, model = served.scenario, served.model
    memory = _measured_memory(served, latency)
    if model is not None:
        model = with_drafter(model, served.drafter(model))
    tokens = rank_section(scenario).tokens_in(model, _memory_left(memory, latency))
    taken = f"{scenario.model} does not fit: its weights take {_gib(memory.weights_bytes)}"
    if memory.reserved_bytes:
        taken += f" and the engine {_gib(memory.reserved_bytes)}"
    gpus = _gpus_in_words(latency.tp * latency.dp, latency.system, "tp x dp")
    left = _left_in_words(scenario.scheduler, memory.budget_bytes, gpus)
    return memory.pool_tokens if tokens is None else tokens, f"{taken} {left}"


def _computed_pool(served: ServedModel) -> tuple[int, str]:
    """The tokens that fit by the shape of the model, and why too few may fit."""
    section, model, hardware = served.scenario.scheduler, served.model, served.hardware
    key = ("scheduler", section.pool_key)
    memory = memory_for_kv(served, key)
    if model is None or hardware is None:
        raise InputError("is required without model and hardware", key=key)
    tp, stages = memory.tp, memory.num_stages
    model = with_drafter(model, served.drafter(model))
    budget_bytes = hardware.memory_bytes * section.memory_share[1]
    tokens = section.tokens_in(model, memory)
    if tokens is None:
        tokens = pool_tokens(
            model,
            int(budget_bytes),
            tp,
            max_rows=section.max_rows,
            window_share=section.window_share(model),
            layers=section.stage_layers(model.num_layers, stages) if stages > 1 else (),
        )
    weights = _gib(weight_bytes_on_gpu(model, tp) / stages)
    gpus = _gpus_in_words(tp * stages, hardware.name, "tp x pp")
    left = _left_in_words(section, budget_bytes, gpus)
    return tokens, f"{model.name} does not fit: its weights take {weights} {left}"


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
    from sim.latency.aiconfigurator import kv_pool

    section, model = rank_section(served.scenario), served.model
    return kv_pool.memory_for_kv(
        served.deployment(latency),
        section.memory_share[1],
        max_step_tokens=section.max_step_tokens,
        max_rows=section.max_rows,
        split_layers=section.stage_layers,
        shape=model,
        drafter=None if model is None else served.drafter(model),
    )


def _left_in_words(section: ServerSection, budget_bytes: float, gpus: str) -> str:
    key, share = section.memory_share
    return f"of the {_gib(budget_bytes)} that {key} {share} leaves on {gpus}"


def _gpus_in_words(num_gpus: int, name: str, product: str) -> str:
    return name if num_gpus == 1 else f"each of {num_gpus} {name} ({product})"


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"


class KvPool(NamedTuple):
    """The KV pool of each server, or of each of its ranks, as a summary has it.

    Attributes:
        printed: its size in the words that the engine prints when it starts.
        tokens, pages, page_size: counting those that the engine keeps for itself.
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
    model = _with_kv_format(served.scenario, served.model)
    spread = parallelism(served.scenario.latency)
    sizes = kv_bytes(with_drafter(model, served.drafter(model)), spread.tp)
    if sizes.windows or sizes.per_request:
        return None
    per_token = sizes.per_token / spread.tp
    if spread.pp == 1:
        return per_token
    layers = served.scenario.scheduler.stage_layers(model.num_layers, spread.pp)
    return per_token * max(layers) / model.num_layers


def transfer_bytes(section: TransferSection, receiver: ServedModel) -> KvBytes:
    """The bytes of a request's KV on its way: as the scenario says, or as its model has them."""
    if section.bytes_per_token is not None:
        return KvBytes(section.bytes_per_token, section.bytes_per_request or 0)
    sizes = _model_kv_bytes(receiver)
    if section.bytes_per_request is None:
        return sizes
    return sizes._replace(per_request=section.bytes_per_request)


def check_same_kv(pools: Mapping[str, ServedModel]) -> None:
    """Check that decode servers can use the KV that prefill servers compute.

    Both engines refuse others when their servers meet (SGLang 0.5.23: `kv_cache_dtype`,
    `disaggregation/common/conn.py:1328`; vLLM 0.33.0: `compute_nixl_compatibility_hash`).
    """
    sizes = {
        name: kv_bytes(_with_kv_format(pool.scenario, pool.model), 1)
        for name, pool in pools.items()
        if pool.model is not None
    }
    for name in list(sizes)[1:]:
        first = next(iter(sizes))
        if sizes[name] != sizes[first]:
            reason = (
                f"has KV of another shape or number format than that of pool {first}:"
                " prefill and decode servers need the same"
            )
            raise InputError(reason, key=("pools", name, "model"))


def _with_kv_format(scenario: Scenario, model: "ModelShape") -> "ModelShape":
    """The model with the number format of the KV cache that the section `latency` gives."""
    latency = latency_section(scenario)
    if not (isinstance(latency, AiconfiguratorLatencyConfig) and latency.quantization.kv_cache):
        return model
    return replace(model, kv_element_bytes=KV_ELEMENT_BYTES.get(latency.quantization.kv_cache, 1))


def _model_kv_bytes(receiver: ServedModel) -> KvBytes:
    scenario, latency = receiver.scenario, latency_section(receiver.scenario)
    if receiver.model is not None:
        model = _with_kv_format(scenario, receiver.model)
        return kv_bytes(with_drafter(model, receiver.drafter(model)), parallelism(latency).tp)
    if isinstance(latency, AiconfiguratorLatencyConfig) and scenario.model is not None:
        from sim.latency.aiconfigurator.kv_pool import measured_kv_bytes

        return measured_kv_bytes(receiver.deployment(latency))
    raise InputError("is required without a model", key=("transfer", "bytes_per_token"))
