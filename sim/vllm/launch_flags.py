"""Scheduler settings as launch flags of vLLM; `read_launch` reads the same tables back.

A flag is the key with hyphens; a switch that is off gets its `--no-` form. Some flags are always
given because vLLM's defaults are not fixed: those of `max_num_batched_tokens` and `max_num_seqs`
depend on the GPU, that of `max_model_len` depends on the model.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sim.core.flags import flag_of
from sim.engine.server_config import BOTH, DECODE, PREFILL
from sim.family.launch_command import LaunchCommand
from sim.latency.config import Parallelism
from sim.validation import launch_keys
from sim.vllm.section.offload import is_simple
from sim.vllm.section.scheduler import VllmSection
from sim.vllm.section.speculation import SpeculativeConfig
from sim.vllm.tier_flags import in_shell, tier_flags
from sim.vllm.version_rules import VERSIONS

COMMAND = 'vllm serve "$MODEL"'

KEYS = launch_keys(VllmSection)
KV_ROLES = {PREFILL: "kv_producer", DECODE: "kv_consumer"}
CONNECTOR = "NixlConnector"
OFFLOADING_CONNECTOR, MULTI_CONNECTOR = "OffloadingConnector", "MultiConnector"
TRANSFER = "kv_transfer_config"
# Keys of section `kv_offloading` that become keys of vLLM's `kv_connector_extra_config`. A tier
# becomes several (`tier_flags`); the others are no settings of vLLM's.
OFFLOADING_KEYS = (
    "eviction_policy", "blocks_per_chunk", "store_threshold", "offload_prompt_only",
    "sync_load_budget_bytes",
)  # fmt: skip
# Before version 0.33.0, it sets the tokens of a chunk in place of the blocks.
CHUNK_TOKENS = "block_size"
# What SimpleCPUOffloadConnector has of them, and of the section's keys; and the variable of the
# environment that chooses it (`_post_init_kv_transfer_config` of config/vllm.py).
SIMPLE_KEYS = ("lazy_offload",)
SIMPLE_VARIABLE = "VLLM_USE_SIMPLE_KV_OFFLOAD"


def vllm_launch(section: VllmSection, searched: Collection[str] = ()) -> LaunchCommand:
    """The launch command with every setting that differs from vLLM's default.

    `searched` keys are given even if they have vLLM's default.
    """
    flags = [
        f"{flag_of(key)} {_value(section, key)}"
        for key in KEYS.given(section, KEYS.options, searched)
    ]
    flags += [_switch(key, value) for key, value in _switches(section)]
    if section.kv_load_failure_policy != "fail":
        flags.append(vllm_role(section, DECODE))
    if extra := _offloading(section):
        flags.append(_transfer_flag({"kv_connector_extra_config": extra}))
    variables = (f"{SIMPLE_VARIABLE}=1",) if is_simple(section) else ()
    return LaunchCommand(f"vLLM {section.version}", COMMAND, variables, tuple(flags), ())


def _offloading(section: VllmSection) -> dict[str, Any]:
    """The `kv_connector_extra_config` of the connector for CPU memory, without its size."""
    if section.kv_offloading is None:
        return {}
    given = section.kv_offloading.model_dump(exclude_defaults=True)
    extra = {key: value for key, value in given.items() if key in (*OFFLOADING_KEYS, *SIMPLE_KEYS)}
    if "blocks_per_chunk" in extra and not VERSIONS[section.version].offloads_parts:
        extra[CHUNK_TOKENS] = extra.pop("blocks_per_chunk") * section.block_size
    return extra | tier_flags(section.kv_offloading.tiers)


def vllm_in_role(launch: LaunchCommand, section: VllmSection, role: str) -> LaunchCommand:
    """See `Family.in_role`.

    With KV in CPU memory there are two connectors. Then its size is a part of their settings, and
    not a flag.
    """
    if role == BOTH:
        return launch
    replaced = flag_of(TRANSFER), flag_of("kv_offloading_size")
    flags = [flag for flag in launch.flags if flag.split()[0] not in replaced]
    return replace(launch, flags=(*flags, vllm_role(section, role)))


def vllm_role(section: VllmSection, role: str) -> str:
    """The flag of a server that only prefills, or only decodes."""
    own: dict[str, Any] = {"kv_role": KV_ROLES[role]}
    if role == DECODE and section.kv_load_failure_policy != "fail":
        own["kv_load_failure_policy"] = section.kv_load_failure_policy
    sends = {"kv_connector": CONNECTOR, **own}
    if section.kv_offloading_size is None:
        return _transfer_flag(sends)
    num_bytes = int(section.kv_offloading_size * (1 << 30))
    keeps = {
        "kv_connector": OFFLOADING_CONNECTOR,
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"cpu_bytes_to_use": num_bytes, **_offloading(section)},
    }
    parts = {"kv_connector_extra_config": {"connectors": [sends, keeps]}}
    return _transfer_flag({"kv_connector": MULTI_CONNECTOR, **own, **parts})


def _transfer_flag(settings: Mapping[str, Any]) -> str:
    return f"--kv-transfer-config {in_shell(json.dumps(settings, separators=(',', ':')))}"


def _switches(section: VllmSection) -> Iterator[tuple[str, bool]]:
    """The switches that are not as the version has them by default."""
    rules = VERSIONS[section.version]
    by_version = {
        "async_scheduling": (section.schedules_ahead, rules.async_scheduling),
        "scheduler_reserve_full_isl": (section.reserves_full_isl, rules.reserves_full_isl),
    }
    for key in KEYS.switches:
        of_all = getattr(section, key), VllmSection.model_fields[key].default
        value, default = by_version.get(key, of_all)
        if value != default:
            yield key, value


def _switch(key: str, value: bool) -> str:
    return flag_of(key) if value else f"--no{flag_of(key)[1:]}"


def vllm_parallel(spread: Parallelism) -> tuple[str, ...]:
    """The flags for several GPUs."""
    sizes = {
        "--tensor-parallel-size": spread.tp,
        "--data-parallel-size": spread.dp,
        "--pipeline-parallel-size": spread.pp,
    }
    flags = [f"{flag} {size}" for flag, size in sizes.items() if size > 1]
    return (*flags, "--enable-expert-parallel") if spread.moe_ep > 1 else tuple(flags)


def _value(section: VllmSection, key: str) -> str:
    value = getattr(section, key)
    if isinstance(value, SpeculativeConfig):
        return f"'{value.model_dump_json(exclude_none=True)}'"
    # null lets a request be as long as the pool; vLLM calls this `auto`.
    return "auto" if key == "max_model_len" and value is None else str(value)
