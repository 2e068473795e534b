"""Every page pool and prefix cache keeps the contract of its seam."""

import pytest

from sim.engine.page_pool import PageCounts, PageIds
from sim.sglang.cache.host.tree import HostTree
from sim.sglang.cache.settings import HostCacheSettings
from sim.sglang.cache.tree.eviction import EVICTION_POLICIES
from sim.sglang.cache.tree.prefix_cache import NoPrefixCache
from sim.sglang.cache.tree.radix_cache import RadixCache
from tests.support.page_pool_contract import PagePoolContract
from tests.support.prefix_cache_contract import PrefixCacheContract


class TestPagePools(PagePoolContract):
    """Pools that only count pages, and pools that name them."""

    @pytest.fixture(params=[PageCounts, PageIds])
    def make_pool(self, request):
        return request.param


class TestRadixCache(PrefixCacheContract):
    """The radix tree, with each eviction policy."""

    @pytest.fixture(params=sorted(EVICTION_POLICIES))
    def make_cache(self, request):
        return lambda pool: RadixCache(pool, EVICTION_POLICIES[request.param](60))


class TestRadixCacheWithHostMemory(PrefixCacheContract):
    """The radix tree with host memory. KV in host memory is not found on the device."""

    @pytest.fixture(params=[None, 1, 2], ids=["write-back", "write-through", "selective"])
    def make_cache(self, request):
        def make(pool):
            settings = HostCacheSettings(20 * pool.page_size, request.param, 0)
            host_pool = PageCounts(20, pool.page_size)
            cache = RadixCache(pool)
            HostTree(cache, settings, host_pool)
            return cache

        return make


class TestNoPrefixCache(PrefixCacheContract):
    """The cache that keeps nothing."""

    @pytest.fixture
    def make_cache(self):
        return lambda pool: NoPrefixCache()
