"""Test suites for classes that a scenario can name.

For a class that a scenario names as `module:Class`, one line is a suite:

    TestMyPolicy = SchedulePolicyContract.of(MyPolicy)

For anything else, a subclass of a suite defines the fixture that its tests take, a factory of the
object under test:

    class TestMyPolicy(SchedulePolicyContract):
        @pytest.fixture
        def make_policy(self):
            return lambda: MyPolicy(SchedulerConfig())
"""

from sim.testing.contracts.policies import (
    AdmissionContract,
    FairnessContract,
    SchedulePolicyContract,
)
from sim.testing.contracts.schedulers import EvictionContract, SchedulerContract
from sim.testing.contracts.traffic import LatencyModelContract, RouterContract, WorkloadContract
from sim.testing.user_classes import Contract

__all__ = [
    "AdmissionContract",
    "Contract",
    "EvictionContract",
    "FairnessContract",
    "LatencyModelContract",
    "RouterContract",
    "SchedulePolicyContract",
    "SchedulerContract",
    "WorkloadContract",
]
