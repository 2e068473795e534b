"""The shapes of what a scenario names: its model, its accelerator, and the drafter.

A drafter takes memory beside the model: its weights, and KV for its layers. vLLM loads it before it
measures what is left, and its layers are among those that the pool has KV for (0.33.0: `load_model`
and `get_kv_cache_spec` of v1/worker/gpu_model_runner.py).
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sim.core.errors import InputError
from sim.family.section import Drafts
from sim.latency.config import AiconfiguratorLatencyConfig
from sim.scenario.schema import Scenario

if TYPE_CHECKING:
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
