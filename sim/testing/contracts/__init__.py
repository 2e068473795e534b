"""What every implementation of a seam promises, as suites to subclass.

A suite's methods take a fixture that its subclass defines: a factory of what is under test.

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
