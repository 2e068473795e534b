"""The size of the KV pool: as the scenario gives it, or what fits into a GPU beside the weights."""

from pathlib import Path
from typing import TYPE_CHECKING

from sim.core.errors import InputError
from sim.family.section import GpuRoom, ServerSection
from sim.latency.config import (
    AiconfiguratorLatencyConfig,
    LatencyConfig,
    num_devices,
    num_ranks,
    num_stages,
)
from sim.scenario.schema import Scenario

if TYPE_CHECKING:
    from sim.latency.aiconfigurator.kv_pool import Room
    from sim.latency.hardware import Hardware
    from sim.latency.shapes import ModelShape


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
    ranks = num_ranks(scenario.latency)
    return scenario.scheduler if ranks == 1 else scenario.scheduler.of_rank(ranks)


def size_of_pool(
    scenario: Scenario, model: "ModelShape | None", hardware: "Hardware | None", base_dir: Path
) -> int:
    """The pool size: as given, or the whole pages that fit beside the weights, in tokens."""
    section = scenario.scheduler
    if section.pool_tokens is not None:
        return section.pool_tokens
    from sim.latency.kv_memory import pool_tokens, weight_bytes_on_gpu
    from sim.scenario.drafter import drafter_of, with_drafter

    share_key, share = section.memory_share
    latency = latency_section(scenario)
    if isinstance(latency, AiconfiguratorLatencyConfig):
        room = _measured_room(scenario, latency, model, base_dir)
        if model is not None:
            model = with_drafter(model, drafter_of(section.drafts, model, base_dir))
        of_family = rank_section(scenario).tokens_in(model, _left(room, latency))
        tokens = room.pool_tokens if of_family is None else of_family
        reserved = f" and the engine {_gib(room.reserved_bytes)}" if room.reserved_bytes else ""
        too_large = (
            f"{scenario.model} does not fit: its weights take {_gib(room.weights_bytes)}{reserved}"
            f" of the {_gib(room.budget_bytes)} that {share_key} {share} leaves on"
            f" {_gpus_in_words(latency.tp * latency.dp, latency.system, 'tp x dp')}"
        )
    else:
        key = ("scheduler", section.pool_key)
        room_left = room_for_kv(scenario, model, hardware, base_dir, key)
        if model is None or hardware is None:
            raise InputError("is required without model and hardware", key=key)
        tp, stages = room_left.tp, room_left.num_stages
        model = with_drafter(model, drafter_of(section.drafts, model, base_dir))
        of_family = section.tokens_in(model, room_left)
        tokens = (
            of_family
            if of_family is not None
            else pool_tokens(
                model,
                int(hardware.memory_bytes * share),
                tp,
                max_rows=section.max_rows,
                window_share=section.window_share(model),
                layers=section.stage_layers(model.num_layers, stages) if stages > 1 else (),
            )
        )
        too_large = (
            f"{model.name} does not fit: its weights take"
            f" {_gib(weight_bytes_on_gpu(model, tp) / stages)} of"
            f" the {_gib(hardware.memory_bytes * share)} that {share_key} {share} leaves on"
            f" {_gpus_in_words(tp * stages, hardware.name, 'tp x pp')}"
        )
    pages = tokens // section.page_size - section.num_pages_kept_back
    if pages < 1:
        raise InputError(too_large, key=("model",))
    return pages * section.page_size


def room_for_kv(
    scenario: Scenario,
    model: "ModelShape | None",
    hardware: "Hardware | None",
    base_dir: Path,
    key: tuple[str, ...],
) -> GpuRoom:
    """What the weights, and a drafter's, leave on a GPU.

    Raises:
        InputError: the scenario does not say how much; the error is about `key`.
    """
    section, latency = scenario.scheduler, latency_section(scenario)
    if isinstance(latency, AiconfiguratorLatencyConfig):
        return _left(_measured_room(scenario, latency, model, base_dir), latency)
    must = "is required" if key[-1] == section.pool_key else "must be a number"
    if model is None or hardware is None:
        raise InputError(f"{must} without model and hardware", key=key)
    if num_ranks(latency) > 1:
        raise InputError(f"{must} with latency.dp above 1", key=key)
    from sim.latency.kv_memory import weight_bytes_on_gpu
    from sim.scenario.drafter import drafter_of, with_drafter

    tp = num_devices(latency)
    model.check_tp(tp)
    model = with_drafter(model, drafter_of(section.drafts, model, base_dir))
    budget = int(hardware.memory_bytes * section.memory_share[1])
    return GpuRoom(budget - weight_bytes_on_gpu(model, tp), tp, num_stages(latency))


def _left(room: "Room", latency: AiconfiguratorLatencyConfig) -> GpuRoom:
    num_bytes = room.budget_bytes - room.weights_bytes - room.reserved_bytes
    return GpuRoom(num_bytes, latency.tp, num_stages(latency))


def _measured_room(
    scenario: Scenario,
    latency: AiconfiguratorLatencyConfig,
    model: "ModelShape | None",
    base_dir: Path,
) -> "Room":
    """What fits beside what the package says the engine keeps in memory."""
    from sim.latency.aiconfigurator.deployment import deployment_of
    from sim.latency.aiconfigurator.kv_pool import kv_room
    from sim.latency.aiconfigurator.package import known_models
    from sim.scenario.drafter import drafter_of

    if scenario.model is None:
        raise InputError(f"kind {latency.kind} needs the scenario's model", key=("latency",))
    section = rank_section(scenario)
    drafter = None if model is None else drafter_of(section.drafts, model, base_dir)
    return kv_room(
        deployment_of(latency, scenario.model, base_dir, known_models()),
        section.memory_share[1],
        max_step_tokens=section.max_step_tokens,
        max_rows=section.max_rows,
        split_layers=section.stage_layers,
        shape=model,
        drafter=drafter,
    )


def _gpus_in_words(num_gpus: int, name: str, product: str) -> str:
    return name if num_gpus == 1 else f"each of {num_gpus} {name} ({product})"


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"
