"""Putting an engine together from its settings."""

from typing import Any

from sim.core.errors import InvariantError
from sim.engine.core import EngineCore
from sim.engine.kv_memory import KVMemory
from sim.engine.page_pool import PageCounts, PageIds, PagePool
from sim.engine.protocols import Executor
from sim.engine.scheduler import BaseScheduler
from sim.engine.server_config import ServerConfig
from sim.sglang.cache.eviction import EVICTION_POLICIES
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.prefix_cache import NoPrefixCache, PrefixCache
from sim.sglang.cache.radix_cache import RadixCache
from sim.sglang.cache.tiered_cache import TieredRadixCache
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import build_policy
from sim.sglang.scheduler.scheduler import Scheduler
from sim.vllm.cache.manager import BlockManager
from sim.vllm.config import VllmConfig
from sim.vllm.scheduler.scheduler import VllmScheduler


def build_engine(config: ServerConfig, *, pool: PagePool[Any], executor: Executor) -> EngineCore:
    """An engine of the configuration's family, whose batches `executor` runs.

    Args:
        config: settings of one of the families.
        pool: where SGLang's KV lives; vLLM's blocks are as many, and always have numbers.
        executor: runs the batches.
    """
    scheduler: BaseScheduler
    memory: KVMemory
    if isinstance(config, VllmConfig):
        blocks = BlockManager(pool.num_pages, pool.page_size, caches=config.enable_prefix_caching)
        memory, scheduler = blocks, VllmScheduler(config, kv=blocks)
    elif isinstance(config, SchedulerConfig):
        pages = KVCacheManager(pool, _prefix_cache(config, pool))
        memory, scheduler = pages, Scheduler(config, kv=pages, policy=build_policy(config))
    else:
        raise InvariantError(f"no scheduler of family {config.family}")
    return EngineCore(
        kv=memory, scheduler=scheduler, executor=executor, least_priority=config.least_priority
    )


def _prefix_cache(config: SchedulerConfig, pool: PagePool[Any]) -> PrefixCache:
    if config.disable_radix_cache:
        return NoPrefixCache()
    leaves = EVICTION_POLICIES[config.radix_eviction_policy](config.pool_tokens)
    if config.host_cache is None:
        return RadixCache(pool, leaves)
    host_pages = config.host_cache.capacity_tokens // config.page_size
    # Host pages have names where the device's have.
    kind = PageIds if isinstance(pool, PageIds) else PageCounts
    host_pool = kind(host_pages, config.page_size)
    return TieredRadixCache(pool, leaves, settings=config.host_cache, host_pool=host_pool)
