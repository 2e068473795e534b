"""One rank of a group, and how long the ranks of a group run decode steps together."""

from collections.abc import Iterable

from sim.core.batch import ScriptedExecutor
from sim.core.errors import InvariantError
from sim.des.replicas.timeline import StepTimes, slower_of
from sim.engine.core import EngineCore
from sim.latency.features import StepFeatures
from sim.latency.model import LatencyModel, growing, launching


class GroupRank:
    """One rank of a group.

    Attributes:
        number: of the rank, over all replicas.
        engine, executor, latency: its own.
        features: of its last step, and under fast-forward of the first of the steps after that;
            None: it runs along.
    """

    def __init__(
        self, number: int, engine: EngineCore, executor: ScriptedExecutor, latency: LatencyModel
    ) -> None:
        self.number = number
        self.engine = engine
        self.executor = executor
        self.latency = latency
        self._launching = launching(latency)
        self._growing = growing(latency)
        self.features: StepFeatures | None = None

    def launch_ns(self, step: StepFeatures) -> int:
        """How long the rank's host launches the kernels of this step."""
        return 0 if self._launching is None else self._launching.launch_ns(step)

    def takes_no_longer(self, other: "GroupRank") -> bool:
        """Whether it is known that a run of decode steps takes the other rank at least as long."""
        mine, theirs = self.features, other.features
        if self._growing is None or other._growing is None or mine is None or theirs is None:
            return False
        return (
            mine.num_decode_rows <= theirs.num_decode_rows
            and mine.num_context_tokens <= theirs.num_context_tokens
            and self._growing.growth_terms == other._growing.growth_terms
        )


def slowest_run(ranks: Iterable[GroupRank], num_steps: int) -> StepTimes:
    """Device and host time of the next decode steps of ranks that step together.

    At least one of them has work. Those that cannot be the slowest are not asked.
    """
    working = [rank for rank in ranks if rank.features is not None]
    working.sort(key=_num_context_tokens, reverse=True)
    asked: list[GroupRank] = []
    slowest: StepTimes | None = None
    for rank in working:
        if rank.features is not None and not any(rank.takes_no_longer(other) for other in asked):
            asked.append(rank)
            times = rank.latency.decode_run_ns(rank.features, num_steps)
            slowest = times if slowest is None else slower_of(slowest, times)
    if slowest is None:
        raise InvariantError("no rank has work")
    return slowest


def _num_context_tokens(rank: GroupRank) -> int:
    return 0 if rank.features is None else rank.features.num_context_tokens
