"""The shapes of what a scenario names, and the size of a request's transfer."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sim.core.errors import InputError
from sim.family.section import Drafts, ServerSection
from sim.latency.config import AiconfiguratorLatencyConfig, LatencyConfig, parallelism
from sim.latency.kv_memory import KvBytes, kv_bytes
from sim.scenario.schema import Scenario
from sim.scenario.servers_section import TransferSection

if TYPE_CHECKING:
    from sim.latency.aiconfigurator.deployment import ModelDeployment
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


def token_bytes(model: "ModelShape") -> int | None:
    """Bytes of a token's KV on one GPU; None: not all layers keep it, or some keep states."""
    sizes = kv_bytes(model, 1)
    return None if sizes.windows or sizes.per_request else sizes.per_token


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
        name: kv_bytes(with_kv_format(pool.scenario, pool.model), 1)
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


def with_kv_format(scenario: Scenario, model: "ModelShape") -> "ModelShape":
    """The model with the number format of the KV cache that the section `latency` gives."""
    latency = latency_section(scenario)
    if not (isinstance(latency, AiconfiguratorLatencyConfig) and latency.quantization.kv_cache):
        return model
    return replace(model, kv_element_bytes=KV_ELEMENT_BYTES.get(latency.quantization.kv_cache, 1))


def _model_kv_bytes(receiver: ServedModel) -> KvBytes:
    scenario, latency = receiver.scenario, latency_section(receiver.scenario)
    if receiver.model is not None:
        model = with_kv_format(scenario, receiver.model)
        return kv_bytes(with_drafter(model, receiver.drafter(model)), parallelism(latency).tp)
    if isinstance(latency, AiconfiguratorLatencyConfig) and scenario.model is not None:
        from sim.latency.aiconfigurator.kv_pool import measured_kv_bytes

        return measured_kv_bytes(receiver.deployment(latency))
    raise InputError("is required without a model", key=("transfer", "bytes_per_token"))
