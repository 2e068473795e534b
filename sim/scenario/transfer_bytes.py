"""How many bytes the transfers of a scenario have: as it says, or as its model has them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sim.core.errors import InputError
from sim.latency.config import AiconfiguratorLatencyConfig, num_devices
from sim.latency.kv_memory import KvBytes, kv_bytes
from sim.scenario.pool_size import latency_section
from sim.scenario.schema import Scenario
from sim.scenario.transfer_section import TransferSection

if TYPE_CHECKING:
    from sim.latency.shapes import ModelShape

_ELEMENT_BYTES = {"bfloat16": 2, "fp8": 1}


def transfer_bytes(
    section: TransferSection, receiver: Scenario, model: "ModelShape | None", base_dir: Path
) -> KvBytes:
    """The bytes of a request's KV on its way.

    Args:
        section: the scenario's section `transfer`.
        receiver: the scenario of the servers that get the KV.
        model: their model, if its shape is known.
        base_dir: what paths are relative to.

    Raises:
        InputError: neither the section nor the model says how many.
    """
    if section.bytes_per_token is not None:
        return KvBytes(section.bytes_per_token, section.bytes_per_request or 0)
    sizes = _of_model(receiver, model, base_dir)
    if section.bytes_per_request is None:
        return sizes
    return sizes._replace(per_request=section.bytes_per_request)


def check_same_kv(pools: Mapping[str, tuple[Scenario, "ModelShape | None"]]) -> None:
    """Check that decode servers can use the KV that prefill servers compute.

    Both engines refuse others when their servers meet (SGLang 0.5.23: `kv_cache_dtype`,
    `disaggregation/common/conn.py:1328`; vLLM 0.33.0: `compute_nixl_compatibility_hash`).

    Args:
        pools: the scenario of each pool's servers, and their model, if its shape is known.

    Raises:
        InputError: the KV of two pools differs in size.
    """
    sizes = {
        name: kv_bytes(_with_kv_format(scenario, model), 1)
        for name, (scenario, model) in pools.items()
        if model is not None
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
    return replace(model, kv_element_bytes=_ELEMENT_BYTES.get(latency.quantization.kv_cache, 1))


def _of_model(receiver: Scenario, model: "ModelShape | None", base_dir: Path) -> KvBytes:
    latency = latency_section(receiver)
    if model is not None:
        from sim.scenario.drafter import drafter_of, with_drafter

        model = _with_kv_format(receiver, model)
        drafter = drafter_of(receiver.scheduler.drafts, model, base_dir)
        return kv_bytes(with_drafter(model, drafter), num_devices(latency))
    if isinstance(latency, AiconfiguratorLatencyConfig) and receiver.model is not None:
        from sim.latency.aiconfigurator.deployment import deployment_of
        from sim.latency.aiconfigurator.kv_pool import measured_kv_bytes
        from sim.latency.aiconfigurator.package import known_models

        return measured_kv_bytes(deployment_of(latency, receiver.model, base_dir, known_models()))
    raise InputError("is required without a model", key=("transfer", "bytes_per_token"))
