"""What tests of a user's own class need: the base of its contract suite, a small simulation."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

import pytest

from sim.des.deployment import Deployment
from sim.des.routers.table import make_router
from sim.des.run import RunOptions, simulate
from sim.family.user_family import load_family
from sim.latency.config import parallelism
from sim.runlog import RunLog
from sim.scenario.build import build
from sim.scenario.load import load_scenario
from sim.user.objects import ClassKind, LoadedClass, UserClass, UserObject

__all__ = ["Contract", "load_family", "simulate_both_ways"]


class Contract:
    """Base class of a suite; its tests take a fixture that makes the object under test."""

    fixture: ClassVar[str]
    kind: ClassVar[ClassKind]
    # Makes of a user's object the one that the simulator uses.
    guard: Callable[[UserObject], Any]

    @classmethod
    def of(cls, user_class: type, *context: object, **settings: Any) -> type[Self]:
        """The suite for a user's class: `TestMine = RouterContract.of(Mine, weight=2)`.

        The object under test is guarded as in a simulation. Its constructor gets the `context`, or
        else a default, and then the settings, as the scenario would give them.
        """
        named = UserClass.model_validate({"kind": f"test:{user_class.__name__}", **settings})
        loaded = LoadedClass(user_class, named, cls.kind)

        def make(self: Contract) -> Any:
            return lambda: self.guard(loaded.make(*(context or self.context())))

        return type(cls.__name__, (cls,), {cls.fixture: pytest.fixture(make)})

    def context(self) -> tuple[object, ...]:
        """What a scenario would give the constructor."""
        return ()


def simulate_both_ways(path: Path) -> RunLog:
    """Simulate a scenario with fast-forward and step by step; returns the log.

    All invariants are checked after each step.

    Raises:
        AssertionError: the two runs decided differently, or at other times.
        InputError: the scenario, or a class that it names, is wrong.
    """
    logs, decisions = [], []
    for fast_forward in (True, False):
        built = build(load_scenario(path))
        scenario = built.loaded.scenario
        with TemporaryDirectory() as folder:
            written = Path(folder) / "decisions.jsonl"
            options = RunOptions(
                fast_forward=fast_forward and built.foresees, check=True, decisions=written
            )
            deployment = Deployment.of_one_kind(
                built.scheduler,
                built.latencies,
                router=make_router(scenario.router, built.loaded.base_dir, scenario.seed),
                host=scenario.host,
                num_front_ends=scenario.scheduler.num_front_ends(parallelism(scenario.latency).dp),
            )
            log = simulate(built.workload, deployment, options)
            decisions.append(written.read_bytes())
        logs.append(log)
    assert decisions[0] == decisions[1], "fast-forward changes the decisions or their times"
    return logs[0]
