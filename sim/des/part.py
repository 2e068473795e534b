"""What a part of a simulation notes beside its log: the order of its rows among all parts."""

from array import array
from collections.abc import Mapping

import numpy as np

from sim.core.request import RequestSpec
from sim.des.clock import Clock
from sim.des.traffic import SimulationLog
from sim.engine.token_clock import TokenClock
from sim.runlog.builder import StepRun
from sim.runlog.decisions import StepLines
from sim.runlog.join import LogPart


class PartLog(SimulationLog):
    """The log of some of the replicas while they run."""

    def __init__(self, env: Clock, decisions: StepLines | None = None) -> None:
        super().__init__(decisions)
        self._env = env
        self._number_of: dict[str, int] = {}
        self._submitted_ns = array("q")
        self._number = array("q")
        self._ended_ns = array("q")

    def arrived(self, rid: str, number: int) -> None:
        """A request of this part arrives; `number` counts the requests of all parts."""
        self._number_of[rid] = number

    def submitted(self, spec: RequestSpec, replica: int) -> None:
        super().submitted(spec, replica)
        self._submitted_ns.append(self._env.now_ns)
        self._number.append(self._number_of.pop(spec.rid))

    def stepped(self, run: StepRun) -> None:
        super().stepped(run)
        self._ended_ns.append(self._env.now_ns)

    def part(self, clocks: Mapping[int, TokenClock], num_steps: int) -> LogPart:
        """The log so far; `clocks` by the numbers of their servers, in ascending order."""
        gaps = {server: clock.take() for server, clock in clocks.items()}
        return LogPart.of(
            self.builder.build((), {"simulated_steps": num_steps}),
            gaps,
            submitted_ns=np.array(self._submitted_ns, dtype=np.int64),
            number=np.array(self._number, dtype=np.int64),
            ended_ns=np.array(self._ended_ns, dtype=np.int64),
        )
