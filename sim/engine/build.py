"""Putting an engine together from its settings."""

from typing import Any

from sim.engine.core import EngineCore
from sim.engine.protocols import Executor
from sim.kvcache.eviction import EVICTION_POLICIES
from sim.kvcache.manager import KVCacheManager
from sim.kvcache.page_pool import PageCounts, PageIds, PagePool
from sim.kvcache.prefix_cache import NoPrefixCache, PrefixCache
from sim.kvcache.radix_cache import RadixCache
from sim.kvcache.tiered_cache import TieredRadixCache
from sim.scheduler.config import SchedulerConfig
from sim.scheduler.policy import build_policy
from sim.scheduler.scheduler import Scheduler


def build_engine(config: SchedulerConfig, *, pool: PagePool[Any], executor: Executor) -> EngineCore:
    """An engine whose KV lives in `pool` and whose batches `executor` runs."""
    kv = KVCacheManager(pool, _prefix_cache(config, pool))
    scheduler = Scheduler(config, kv=kv, policy=build_policy(config))
    return EngineCore(config, kv=kv, scheduler=scheduler, executor=executor)


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
