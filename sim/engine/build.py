"""Putting an engine together from its settings."""

from typing import Any

from sim.core.errors import InvariantError
from sim.engine.core import EngineCore
from sim.engine.protocols import Executor
from sim.kvcache.blocks.manager import BlockManager
from sim.kvcache.eviction import EVICTION_POLICIES
from sim.kvcache.manager import KVCacheManager
from sim.kvcache.memory import KVMemory
from sim.kvcache.page_pool import PageCounts, PageIds, PagePool
from sim.kvcache.prefix_cache import NoPrefixCache, PrefixCache
from sim.kvcache.radix_cache import RadixCache
from sim.kvcache.tiered_cache import TieredRadixCache
from sim.scheduler.base import BaseScheduler
from sim.scheduler.config import SchedulerConfig
from sim.scheduler.policy import build_policy
from sim.scheduler.scheduler import Scheduler
from sim.scheduler.settings import ServerConfig
from sim.scheduler.vllm.config import VllmConfig
from sim.scheduler.vllm.scheduler import VllmScheduler


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
