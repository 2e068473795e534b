"""Scheduler settings as launch flags of vLLM; `read_launch` reads the same tables back.

A flag is the key with hyphens; a switch that is off gets its `--no-` form. Some flags are always
given because vLLM's defaults are not fixed: those of `max_num_batched_tokens` and `max_num_seqs`
depend on the GPU, that of `max_model_len` depends on the model.
"""

import json
from collections.abc import Collection, Iterator

from sim.engine.partner import DECODE, PREFILL
from sim.family.launch_command import LaunchCommand
from sim.latency.config import Parallelism
from sim.vllm.section import VllmSection
from sim.vllm.speculative_section import SpeculativeConfig
from sim.vllm.version_rules import VERSIONS

COMMAND = 'vllm serve "$MODEL"'

_ALWAYS = ("max_num_batched_tokens", "max_num_seqs", "max_model_len")
OPTIONS = (
    *_ALWAYS,
    "block_size",
    "num_gpu_blocks_override",
    "gpu_memory_utilization",
    "kv_cache_dtype",
    "long_prefill_token_threshold",
    "max_num_active_seqs",
    "prefill_schedule_interval",
    "watermark",
    "max_num_queued_reqs",
    "max_num_queued_tokens",
    "max_cudagraph_capture_size",
    "scheduling_policy",
    "speculative_config",
    "api_server_count",
)
SWITCHES = (
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "async_scheduling",
    "scheduler_reserve_full_isl",
    "long_prefill_token_threshold_adaptive",
)
KV_ROLES = {PREFILL: "kv_producer", DECODE: "kv_consumer"}
CONNECTOR = "NixlConnector"


def vllm_launch(section: VllmSection, searched: Collection[str] = ()) -> LaunchCommand:
    """The launch command with every setting that differs from vLLM's default.

    Args:
        section: the settings.
        searched: keys that a search varied; they are given even if they have vLLM's default.
    """
    flags = [
        f"{_flag(key)} {_value(section, key)}"
        for key in OPTIONS
        if _is_given(section, key, searched)
    ]
    flags += [_switch(key, value) for key, value in _switches(section)]
    interval = section.prefix_cache_retention_interval
    if interval != 0:
        flags.append(f"--prefix-cache-retention-interval {interval}")
    if section.kv_load_failure_policy != "fail":
        flags.append(vllm_role(section, DECODE))
    return LaunchCommand(f"vLLM {section.version}", COMMAND, (), tuple(flags), ())


def vllm_role(section: VllmSection, role: str) -> str:
    """The flag of a server that only prefills, or only decodes."""
    settings = {"kv_connector": CONNECTOR, "kv_role": KV_ROLES[role]}
    if role == DECODE and section.kv_load_failure_policy != "fail":
        settings["kv_load_failure_policy"] = section.kv_load_failure_policy
    return f"--kv-transfer-config '{json.dumps(settings, separators=(',', ':'))}'"


def _switches(section: VllmSection) -> Iterator[tuple[str, bool]]:
    """The switches that are not as the version has them by default."""
    rules = VERSIONS[section.version]
    values = (
        (section.enable_prefix_caching, True),
        (section.enable_chunked_prefill, True),
        (section.schedules_ahead, rules.async_scheduling),
        (section.reserves_full_isl, rules.reserves_full_isl),
        (section.long_prefill_token_threshold_adaptive, False),
    )
    for key, (value, default) in zip(SWITCHES, values, strict=True):
        if value != default:
            yield key, value


def _switch(key: str, value: bool) -> str:
    return _flag(key) if value else f"--no{_flag(key)[1:]}"


def vllm_parallel(spread: Parallelism) -> tuple[str, ...]:
    """The flags for several GPUs."""
    sizes = {
        "--tensor-parallel-size": spread.tp,
        "--data-parallel-size": spread.dp,
        "--pipeline-parallel-size": spread.pp,
    }
    flags = [f"{flag} {size}" for flag, size in sizes.items() if size > 1]
    return (*flags, "--enable-expert-parallel") if spread.moe_ep > 1 else tuple(flags)


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _value(section: VllmSection, key: str) -> str:
    value = getattr(section, key)
    if isinstance(value, SpeculativeConfig):
        return f"'{value.model_dump_json(exclude_none=True)}'"
    # null lets a request be as long as the pool; vLLM calls this `auto`.
    return "auto" if key == "max_model_len" and value is None else str(value)


def _is_given(section: VllmSection, key: str, searched: Collection[str]) -> bool:
    value = getattr(section, key)
    if key in _ALWAYS:
        return True
    if value is None:
        return False
    return key in searched or value != VllmSection.model_fields[key].default
