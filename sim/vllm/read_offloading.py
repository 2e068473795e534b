"""Reads what a launch command of vLLM says of KV in CPU memory."""

from collections.abc import Collection, Mapping
from typing import Any

from sim.core.errors import shorten
from sim.core.flags import plain_value
from sim.engine.server_config import BOTH
from sim.family.section import is_valid
from sim.vllm.launch_flags import (
    CHUNK_TOKENS,
    OFFLOADING_CONNECTOR,
    OFFLOADING_KEYS,
    SIMPLE_KEYS,
    SIMPLE_VARIABLE,
)
from sim.vllm.offload.settings import SIMPLE
from sim.vllm.section.scheduler import VllmSection
from sim.vllm.tier_flags import take_tiers
from sim.vllm.version_rules import NEWEST, VERSIONS

_SIZE, _KEYS = "kv_offloading_size", "kv_offloading"
_BYTES = "cpu_bytes_to_use"
# `DEFAULT_CPU_CAPACITY_BYTES` of v1/simple_cpu_offload_connector.py.
_SIMPLE_BYTES = 8 << 30


def check_backend(values: dict[str, Any], variables: Mapping[str, str], notes: list[str]) -> None:
    """Take `kv_offloading_backend` out of the values; others than OffloadingConnector have no size.

    `variables`: those of the environment, one of which chooses the connector, too.
    """
    backend = values.pop("kv_offloading_backend", "native")
    if backend != "native":
        values.pop(_SIZE, None)
        notes.append(f"--kv-offloading-backend {shorten(str(backend))}: not simulated")
    elif variables.get(SIMPLE_VARIABLE, "0") != "0" and _SIZE in values:
        values[_KEYS] = {"kv_connector": SIMPLE}


def takes_offloading(transfer: Mapping[str, Any], values: dict[str, Any], notes: list[str]) -> bool:
    """Take the settings of a connector for CPU memory from `kv_transfer_config`, if it has one.

    vLLM 0.33.0: with `--kv-offloading-size`, the connector is OffloadingConnector, or with a
    variable of the environment SimpleCPUOffloadConnector, whatever else is given
    (`_post_init_kv_transfer_config` of config/vllm.py).
    """
    extra = transfer.get("kv_connector_extra_config")
    extra = extra if isinstance(extra, dict) else {}
    connector = values.get(_KEYS, {}).get("kv_connector", OFFLOADING_CONNECTOR)
    if _SIZE not in values:
        num_bytes, connector = extra.get(_BYTES), transfer.get("kv_connector")
        if connector == SIMPLE and num_bytes is None:
            num_bytes = _SIMPLE_BYTES
        if connector not in (OFFLOADING_CONNECTOR, SIMPLE) or not isinstance(num_bytes, int):
            return False
        values[_SIZE] = num_bytes / (1 << 30)
    if connector == SIMPLE:
        return _takes_simple(extra, values, notes)
    keys = {key: extra[key] for key in OFFLOADING_KEYS if key in extra}
    if "blocks_per_chunk" not in keys and (per_chunk := _blocks_per_chunk(extra, values)):
        keys["blocks_per_chunk"] = per_chunk
    if (tiers := take_tiers(extra, notes)) is not None:
        keys["secondary_tiers"] = tiers
    if keys:
        values[_KEYS] = keys
    return True


def _takes_simple(extra: Mapping[str, Any], values: dict[str, Any], notes: list[str]) -> bool:
    if extra.get("kv_offload_backend", "cpu") != "cpu":
        values.pop(_SIZE)
        values.pop(_KEYS, None)
        notes.append(f"--kv-transfer-config: {SIMPLE} with a disk is not simulated")
        return True
    others = [key for key in ("num_cpu_blocks", "cpu_bytes_to_use_per_rank") if key in extra]
    notes += [f"--kv-transfer-config: {key} is not simulated, {_BYTES} is" for key in others]
    keys = {key: extra[key] for key in SIMPLE_KEYS if key in extra}
    values[_KEYS] = {"kv_connector": SIMPLE, **keys}
    return True


def _blocks_per_chunk(extra: Mapping[str, Any], values: Mapping[str, Any]) -> int:
    """Blocks of a chunk whose tokens are given; 0: they are not, or are no whole blocks."""
    default = VllmSection.model_fields["block_size"].default
    block_size = plain_value(str(values.get("block_size", default)))
    num_tokens = extra.get(CHUNK_TOKENS)
    if not (isinstance(num_tokens, int) and isinstance(block_size, int) and block_size > 0):
        return 0
    return 0 if num_tokens % block_size else num_tokens // block_size


def leave_out_offloading(
    scheduler: dict[str, Any], roles: Collection[str], notes: list[str]
) -> None:
    """Drop the keys if CPU memory is not simulated with the other flags, or in this version."""
    if _SIZE not in scheduler:
        return
    without = {key: value for key, value in scheduler.items() if key not in (_SIZE, _KEYS)}
    rules = VERSIONS[str(scheduler.get("version", NEWEST))]
    is_simple = scheduler.get(_KEYS, {}).get("kv_connector") == SIMPLE
    is_refused = BOTH not in roles and (is_simple or not rules.offloads_parts)
    if is_refused or (is_valid(VllmSection, without) and not is_valid(VllmSection, scheduler)):
        scheduler.pop(_SIZE)
        scheduler.pop(_KEYS, None)
        notes.append("--kv-offloading-size: not simulated with the other flags")
