"""What the times of a run's requests follow from: its traffic, and the servers of every pool."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from calibrate.explain.times import BlendedLatency, Stall, StepTimes, asked_and_unlike
from sim.core.packed import Line
from sim.des.autoscale.scaler import Autoscale
from sim.des.deployment import Deployment, HandoverOptions, ServerPool
from sim.des.routers.router import Router
from sim.des.run import RunOptions, simulate
from sim.des.servers import Servers
from sim.engine.server_config import BOTH
from sim.latency.kv_memory import KvBytes
from sim.latency.model import LatencyModel, ReplicaLatency
from sim.runlog import RunLog
from sim.runlog.run_log_file import read_decisions
from sim.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSetup:
    """The servers of a pool, or all servers of a run without pools; each part of either run.

    Attributes:
        role: what they compute, see `sim.engine.server_config`.
        servers: what every server is like, without its latency.
        num_servers, num_ranks: how many servers there are, or may be, and the ranks of each.
        autoscale: how the number of servers changes; None: it does not.
        gpus: GPUs of a server.
        received: of role `decode`: the KV of a request that a server gets.
        prefill, decode, gaps: step times of the server, or rank, with a number, see
            `BlendedLatency`. They are made anew for each simulation, because a recording has a
            place.
        stalls: of each server, steps that take much longer than others like them; further servers
            have none.
        in_stages: shares step times out over the stages of a server; None: it has none.
    """

    role: str = BOTH
    servers: Servers
    num_servers: int = 1
    num_ranks: int = 1
    autoscale: Autoscale | None = None
    gpus: int = 1
    received: KvBytes | None = None
    prefill: Callable[[int], StepTimes]
    decode: Callable[[int], StepTimes]
    gaps: Callable[[int], StepTimes]
    stalls: Sequence[Sequence[Stall]] = ()
    in_stages: Callable[[LatencyModel], LatencyModel] | None = None

    def latencies(self) -> list[BlendedLatency]:
        """New ones of all servers, or of all their ranks."""
        return [self._latency(number) for number in range(self.num_servers * self.num_ranks)]

    def _latency(self, number: int) -> BlendedLatency:
        makers = (self.prefill, self.decode, self.gaps)
        made = {id(make): make(number) for make in makers}
        prefill, decode, gaps = (made[id(make)] for make in makers)
        stalls = self.stalls[number] if number < len(self.stalls) else ()
        return BlendedLatency(prefill, decode, gaps, stalls)

    def server_pool(self, name: str, blended: Sequence[BlendedLatency]) -> ServerPool:
        """The pool, with these latencies."""
        in_stages = self.in_stages or (lambda latency: latency)
        latencies: list[ReplicaLatency] = [in_stages(latency) for latency in blended]
        if self.num_ranks > 1:
            ranks = self.num_ranks
            latencies = [
                tuple(map(in_stages, blended[first : first + ranks]))
                for first in range(0, len(blended), ranks)
            ]
        servers = self.servers._replace(latencies=latencies)
        return ServerPool(name, self.role, servers, self.autoscale, self.gpus, self.received)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything that the times of a run's requests follow from, each part of either run.

    Attributes:
        workload: the requests and when they arrive.
        pools: the servers by the name of their pool; without pools, it is empty.
        routers: by role: makes the router.
        handover: how KV gets from prefill to decode servers; None: there are none.
    """

    workload: Workload
    pools: Mapping[str, PoolSetup]
    routers: Mapping[str, Callable[[], Router]]
    handover: HandoverOptions | None = None

    def simulated_with_steps(self) -> tuple[RunLog, list[Line]]:
        """The run, and what each of its steps computes."""
        with TemporaryDirectory() as folder:
            decisions = Path(folder) / "decisions.jsonl"
            log, _ = self.simulated(decisions)
            steps, _ = read_decisions(decisions)
        return log, steps

    def simulated(self, decisions: Path | None = None) -> tuple[RunLog, float]:
        """The run, and the share of its steps in percent that are unlike every recorded step.

        With `decisions`, the decision log is written there.
        """
        blended = {name: pool.latencies() for name, pool in self.pools.items()}
        deployment = Deployment(
            [pool.server_pool(name, blended[name]) for name, pool in self.pools.items()],
            {role: make() for role, make in self.routers.items()},
            self.handover,
        )
        log = simulate(self.workload, deployment, RunOptions(decisions=decisions))
        counts = [asked_and_unlike(latency) for each in blended.values() for latency in each]
        num_asked = sum(asked for asked, _ in counts)
        num_unlike = sum(unlike for _, unlike in counts)
        return log, 100 * num_unlike / num_asked if num_asked else 0.0
