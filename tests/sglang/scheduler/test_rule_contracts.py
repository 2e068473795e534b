"""Every built-in fairness rule, admission and eviction policy keeps the contract of its seam."""

import pytest

from sim.engine.page_pool import PageCounts
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.tree.eviction import EVICTION_POLICIES
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.config import PackSettings
from sim.sglang.scheduler.prefill.admission import build_admission
from sim.sglang.scheduler.waiting.fairness import (
    AgingTokens,
    FairnessT,
    ForceFifo,
    KLpm,
    build_fairness,
)
from sim.testing.contracts import AdmissionContract, EvictionContract, FairnessContract


class TestFairness(FairnessContract):
    """All rules, and none."""

    @pytest.fixture(
        params=[None, FairnessT(0), FairnessT(3 * 10**8), KLpm(3), AgingTokens(7), ForceFifo(4)],
        ids=str,
    )
    def make_rule(self, request):
        return lambda: build_fairness(request.param)


class TestAdmission(AdmissionContract):
    """As in SGLang, and packing by both costs."""

    @pytest.fixture(
        params=[None, PackSettings(64, 8, counts_cached=True), PackSettings(5, 3, False)], ids=str
    )
    def make_admission(self, request):
        def make():
            pool = PageCounts(1000, 1)
            return build_admission(request.param, KVCacheManager(pool, RadixCache(pool)), 150)

        return make


class TestEviction(EvictionContract):
    """All policies."""

    @pytest.fixture(params=EVICTION_POLICIES)
    def make_leaves(self, request):
        return lambda: EVICTION_POLICIES[request.param](300)
