"""Every schedule policy keeps the contract of its seam."""

import pytest

from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import POLICIES, PRIORITY_POLICIES
from sim.testing.contracts import SchedulePolicyContract

_ALL = [(table, name) for table in (POLICIES, PRIORITY_POLICIES) for name in sorted(table)]
_CASES = [
    pytest.param((table[name], low_first), id=f"{name}-{table[name].__name__}-{low_first}")
    for table, name in _ALL
    for low_first in (False, True)
]


class TestPolicies(SchedulePolicyContract):
    """All policies except the shuffled one."""

    @pytest.fixture(params=[case for case in _CASES if "random" not in case.id])
    def make_policy(self, request):
        policy, low_first = request.param
        return lambda: policy(SchedulerConfig(schedule_low_priority_values_first=low_first))


class TestRandomOrder(SchedulePolicyContract):
    """The shuffled one. Only it may reorder equal requests."""

    keeps_ties = False

    @pytest.fixture
    def make_policy(self):
        return lambda: POLICIES["random"](SchedulerConfig(random_seed=3))
