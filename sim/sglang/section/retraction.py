"""Host memory of a decode server for the KV of retracted requests.

Source: SGLang 0.5.23, `resolve_decode_retraction_backup` and `decode_retraction_max_tokens` in
mem_cache/kv_cache_builder.py, `HostKVCache` in mem_cache/pool_host/base.py.
"""

from typing import TYPE_CHECKING

from sim.core.errors import InputError
from sim.sglang.config import SchedulerConfig
from sim.sglang.section.keys import SglangKeys

if TYPE_CHECKING:
    from sim.latency.shapes import ModelShape

BACKUP_KEY = "disaggregation_decode_retraction_backup"
RATIO_KEY = "hicache_ratio"
_HOST_POOL = "host_pool"
_CPU_TENSOR = "cpu_tensor"
# Of the pool on the device, unless the longest request needs more.
_LEAST_RATIO = 0.2
# `ReqToTokenPool.max_context_len` is the context and 4; the last token of a request has no KV yet.
_MORE_THAN_CONTEXT = 4 - 1


def host_tokens(ratio: float | None, pool_tokens: int, page_size: int) -> int | None:
    """The host memory for a pool, in tokens; None: it never runs out.

    `ratio`: see `retraction_host_ratio`. SGLang adds a page to what follows from it.
    """
    if not ratio:
        return None if ratio is None else 0
    return (int(pool_tokens * ratio) // page_size + 1) * page_size


def retraction_host_ratio(
    section: SglangKeys, config: SchedulerConfig, model: "ModelShape | None"
) -> float | None:
    """Host memory as a multiple of the pools; None: it never runs out, 0: there is none.

    Raises:
        InputError: SGLang does not start with these settings, or they are not simulated.
    """
    reason = _why_no_host_pool(section, model)
    usual = _CPU_TENSOR if reason else _HOST_POOL
    backup = section.disaggregation_decode_retraction_backup or usual
    if backup != _HOST_POOL:
        if section.hicache_ratio is not None:
            kept = f"is the size of the host pool, but {BACKUP_KEY} is {backup}"
            raise InputError(kept, key=("scheduler", RATIO_KEY))
        return None if backup == _CPU_TENSOR else 0.0
    if reason:
        raise InputError(f"{_HOST_POOL} does not go with {reason}", key=("scheduler", BACKUP_KEY))
    pool_tokens, page_size = config.pool_tokens, config.page_size
    ratio = section.hicache_ratio
    if ratio is None:
        longest = min(config.context_length + _MORE_THAN_CONTEXT, pool_tokens)
        ratio = max(_LEAST_RATIO, -(-longest // page_size) * page_size / pool_tokens)
    return ratio


def _why_no_host_pool(section: SglangKeys, model: "ModelShape | None") -> str:
    """What SGLang's host pool does not go with; empty: there is nothing."""
    if section.disaggregation_decode_enable_radix_cache:
        return "disaggregation_decode_enable_radix_cache"
    if section.enable_priority_scheduling and not section.disable_priority_preemption:
        return "enable_priority_scheduling without disable_priority_preemption"
    if model is None:
        return ""
    layers = [layer.attention for layer in model.layers]
    if any(each.pair_flops != each.decode_pair_flops for each in layers):
        return "models with latent attention"
    return "models with states" if any(each.state_elements for each in layers) else ""
