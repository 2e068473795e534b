"""Test suites for every implementation of an interface.

A subclass of a suite defines the fixture that its tests take, a factory of the object under test:

    class TestMyPolicy(SchedulePolicyContract):
        @pytest.fixture
        def make_policy(self):
            return lambda: MyPolicy(SchedulerConfig())
"""

from sim.testing.contracts.executors import ExecutorContract
from sim.testing.contracts.latencies import LatencyModelContract
from sim.testing.contracts.page_pools import PagePoolContract
from sim.testing.contracts.policies import SchedulePolicyContract
from sim.testing.contracts.prefix_caches import PrefixCacheContract
from sim.testing.contracts.routers import RouterContract
from sim.testing.contracts.schedulers import SchedulerContract

__all__ = [
    "ExecutorContract",
    "LatencyModelContract",
    "PagePoolContract",
    "PrefixCacheContract",
    "RouterContract",
    "SchedulePolicyContract",
    "SchedulerContract",
]
