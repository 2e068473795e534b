"""Family `sglang`: where each part of it is."""

from typing import TYPE_CHECKING, Any

from sim.engine.core import EngineCore
from sim.engine.family import Family
from sim.engine.page_pool import PageCounts, PageIds, PagePool

if TYPE_CHECKING:
    from sim.sglang.cache.prefix_cache import PrefixCache
    from sim.sglang.config import SchedulerConfig
    from sim.sglang.scheduler.scheduler import SglangScheduler


class SglangFamily(Family):
    """SGLang 0.5.23."""

    name = "sglang"

    def build(self, config: "SchedulerConfig", pool: PagePool[Any]) -> "SglangScheduler":
        from sim.sglang.cache.manager import KVCacheManager
        from sim.sglang.policies.policy import build_policy
        from sim.sglang.scheduler.scheduler import SglangScheduler

        kv = KVCacheManager(pool, _prefix_cache(config, pool))
        return SglangScheduler(config, kv=kv, policy=build_policy(config))

    def check(self, engine: EngineCore) -> None:
        from sim.sglang.check import check_sglang_memory

        check_sglang_memory(engine)


def _prefix_cache(config: "SchedulerConfig", pool: PagePool[Any]) -> "PrefixCache":
    from sim.sglang.cache.eviction import EVICTION_POLICIES
    from sim.sglang.cache.prefix_cache import NoPrefixCache
    from sim.sglang.cache.radix_cache import RadixCache
    from sim.sglang.cache.tiered_cache import TieredRadixCache

    if config.disable_radix_cache:
        return NoPrefixCache()
    leaves = EVICTION_POLICIES[config.radix_eviction_policy](config.pool_tokens)
    if config.host_cache is None:
        return RadixCache(pool, leaves)
    # Host pages have ids where the device's have.
    kind = PageIds if isinstance(pool, PageIds) else PageCounts
    host_pool = kind(config.host_cache.capacity_tokens // config.page_size, config.page_size)
    return TieredRadixCache(pool, leaves, settings=config.host_cache, host_pool=host_pool)
