"""The scheduler of a vLLM that the user has installed."""

from typing import Any

from sim.installed.process import EngineServer
from sim.installed.scheduler import EngineScheduler
from sim.vllm.cache.single_type_manager import KVCacheSpec
from sim.vllm.config import VllmConfig
from sim.vllm.scheduler.scheduler import VllmScheduler
from sim.vllm.section.groups import SIZE_KEYS

_SAME_NAME = (
    "max_model_len", "max_num_batched_tokens", "max_num_seqs", "max_num_active_seqs",
    "num_gpu_blocks", "block_size", "enable_prefix_caching", "enable_chunked_prefill",
    "long_prefill_token_threshold", "long_prefill_token_threshold_adaptive", "async_scheduling",
    "scheduler_reserve_full_isl", "watermark", "prefill_schedule_interval",
)  # fmt: skip


def engine_scheduler(config: VllmConfig, like: VllmScheduler) -> EngineScheduler:
    """A scheduler that asks `config.engine`; `like` is the family's own.

    Raises InputError: the engine cannot be started, or refuses the settings.
    """
    server = EngineServer(config.engine, engine_settings(config))
    return EngineScheduler(server, like, keeps=like.keeps_tokens_in_flight)


def engine_settings(config: VllmConfig) -> dict[str, Any]:
    """The settings under the names of `sim.installed.inside.vllm.scheduler`."""
    settings = {name: getattr(config, name) for name in _SAME_NAME}
    settings |= {"policy": config.scheduling_policy, "stages": config.micro_batches}
    if config.speculation is not None:
        drafts = config.speculation
        settings["speculation"] = {
            "method": drafts.method,
            "num_speculative_tokens": drafts.num_tokens,
        }
    if config.kv_cache_groups:
        settings["kv_cache_groups"] = [_group(spec) for spec in config.kv_cache_groups]
        settings["prefix_cache_retention_interval"] = config.prefix_cache_retention_interval
    return settings


def _group(spec: KVCacheSpec) -> dict[str, Any]:
    group: dict[str, Any] = {"kind": spec.kind}
    if spec.kind in SIZE_KEYS:
        group[SIZE_KEYS[spec.kind]] = spec.size
    if spec.checkpoint_alignment:
        group["prefill_checkpoint_alignment"] = spec.checkpoint_alignment
    return group
