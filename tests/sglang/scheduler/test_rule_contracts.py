"""Every built-in fairness rule, admission and eviction policy keeps the contract of its seam."""

import pytest

from sim.engine.page_pool import PageCounts
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.tree.eviction import EVICTION_POLICIES
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.config import PackSettings
from sim.sglang.scheduler.prefill.admission import WholeQueue, build_admission
from sim.sglang.scheduler.waiting.fairness import (
    AgingTokens,
    FairnessT,
    ForceFifo,
    KLpm,
    NoFairness,
    build_fairness,
)
from sim.testing.contracts import AdmissionContract, EvictionContract, FairnessContract


class TestFairness(FairnessContract):
    """All rules."""

    @pytest.fixture(
        params=[FairnessT(0), FairnessT(3 * 10**8), KLpm(3), AgingTokens(7), ForceFifo(4)],
        ids=str,
    )
    def make_rule(self, request):
        return lambda: build_fairness(request.param)


class TestNoFairness(FairnessContract):
    """The base class of users' rules keeps the order."""

    @pytest.fixture
    def make_rule(self):
        return NoFairness


class TestAdmission(AdmissionContract):
    """Packing by both costs."""

    @pytest.fixture(
        params=[PackSettings(64, 8, counts_cached=True), PackSettings(5, 3, False)], ids=str
    )
    def make_admission(self, request):
        def make():
            pool = PageCounts(1000, 1)
            return build_admission(request.param, KVCacheManager(pool, RadixCache(pool)), 150)

        return make


class TestWholeQueue(AdmissionContract):
    """The base class of users' admissions selects all."""

    @pytest.fixture
    def make_admission(self):
        return WholeQueue


class TestEviction(EvictionContract):
    """All policies."""

    @pytest.fixture(params=EVICTION_POLICIES)
    def make_leaves(self, request):
        return lambda: EVICTION_POLICIES[request.param](300)
