"""A part of a simulation: some of the replicas, where no replica can influence another."""

from array import array
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from sim.core.errors import InputError
from sim.core.request import RequestSpec
from sim.des.clock import Clock
from sim.des.deployment import Deployment
from sim.des.routers.router import HiddenReplica, RoutedReplica, Router
from sim.des.servers import RunOptions
from sim.des.traffic import SimulationLog, open_loop
from sim.engine.request import TokenClock
from sim.runlog.builder import StepRun
from sim.runlog.columns import LogPart
from sim.runlog.decisions import StepLines
from sim.workload.workload import ScriptedRequest, Workload


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
        num_new = self.builder.num_step_rows - len(self._ended_ns)
        self._ended_ns.extend([self._env.now_ns] * num_new)

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


class PartFailedError(Exception):
    """A part of a simulation failed.

    Attributes:
        at_ns: the time of the run at which it did: what fails first in a run is the run's error.
    """

    def __init__(self, at_ns: int, error: Exception) -> None:
        super().__init__(at_ns, error)
        self.at_ns = at_ns
        self.error = error


def simulate_part(
    workload: Workload,
    deployment: Deployment,
    part: Collection[int],
    options: RunOptions,
    decisions: StepLines | None = None,
) -> LogPart:
    """Simulate some of the replicas: those whose numbers are in `part`.

    The deployment must have no pools, the workload must be open-loop, and the router must look at
    no loads. Then the logs of all parts, `joined`, are what `simulate` returns. The lines of a
    decision log go to `decisions`.

    Raises PartFailedError: with what `simulate` would raise.
    """
    env = Clock()
    reports = PartLog(env, decisions)
    (pool,) = deployment.pools
    servers, router = pool.servers, deployment.routers[pool.role]
    made = servers.make(env, reports, sorted(part), options, clients_react=False)
    seen = [HiddenReplica()] * len(servers.latencies)
    # The choices for requests that have not arrived yet, of which there is one.
    chosen: deque[int | InputError] = deque()

    def of_part() -> Iterator[ScriptedRequest]:
        for number, request in enumerate(workload.arrivals()):
            place = _chosen(router, request.spec, seen)
            if isinstance(place, InputError) or place in made.entries:
                reports.arrived(request.spec.rid, number)
                chosen.append(place)
                yield request

    def submit(request: ScriptedRequest) -> None:
        place = chosen.popleft()
        if isinstance(place, InputError):
            raise place
        reports.account.arrived(request.spec.rid)
        made.entries[place].submit(request)

    env.process(open_loop(env, of_part(), submit))
    try:
        num_steps = made.run(env)
        reports.account.close(made.engines())
    except Exception as error:
        raise PartFailedError(env.now_ns, error) from error
    ranks = range(servers.num_ranks)
    numbers = [servers.number(index) + rank for index in made.replicas for rank in ranks]
    return reports.part(dict(zip(numbers, made.clocks(), strict=True)), num_steps)


def _chosen(
    router: Router, spec: RequestSpec, replicas: Sequence[RoutedReplica]
) -> int | InputError:
    """The router's choice, or why it has none."""
    try:
        return router.choose(spec, replicas)
    except InputError as error:
        return error
