"""A whole simulation: clients, routers and servers, from the workload to the run log."""

from collections.abc import Mapping, Sequence
from functools import partial

from sim.des.autoscale.scaler import ScaledServers, routed
from sim.des.clock import Clock
from sim.des.deployment import Deployment, HandoverOptions, ServerPool
from sim.des.replicas.replica import Replica
from sim.des.routers.router import Target
from sim.des.routers.table import connect
from sim.des.servers import Made, PoolFactory, RunOptions, run_to_end
from sim.des.traffic import SimulationLog, start_traffic
from sim.des.transfers.handover import DecodeLog, Handovers, PrefillLog, check_handovers
from sim.des.transfers.transfers import Transfers
from sim.engine.core import EngineCore
from sim.engine.request import TokenClock
from sim.engine.server_config import BOTH, DECODE, PREFILL
from sim.runlog import RunLog
from sim.runlog.decisions import DecisionLog
from sim.runlog.servers import FLEET, FleetEvent, FleetLog, ReplicaState, logged_pools
from sim.workload.workload import ScriptedRequest, Workload

__all__ = ["PoolFactory", "RunOptions", "simulate"]


def simulate(
    workload: Workload, deployment: Deployment, options: RunOptions | None = None
) -> RunLog:
    """Simulate until all requests of a workload have ended.

    The workload may be open-loop requests, closed-loop clients, a benchmark's phases, or several.

    Raises:
        InputError: a recording of step times is too short, or the decision log cannot be written.
        InvariantError: a bug in the simulator.
    """
    options, deployment = options or RunOptions(), deployment.numbered()
    decisions = _decision_log(deployment, options)
    env = Clock()
    log = SimulationLog(None if decisions is None else decisions.steps, options.watcher)
    if options.on_end is not None:
        log.on_end.append(options.on_end)
    reacts = len(deployment.pools) > 1 or bool(workload.clients) or bool(workload.phases)
    try:
        run = Running(env, deployment, log, options, clients_react=reacts)

        def submit(request: ScriptedRequest) -> None:
            if log.ends_warm_up(request.spec):
                for clock in run.clocks:
                    clock.forget()
            run.submit(request)

        start_traffic(env, workload, submit, log)
        run.run()
        run.close(workload.num_requests)
        built = log.builder.build(run.clocks, run.meta())
        if decisions is not None:
            decisions.close(built)
    finally:
        if decisions is not None:
            decisions.discard()
    return built


def _decision_log(deployment: Deployment, options: RunOptions) -> DecisionLog | None:
    if options.decisions is None:
        return None
    if len(deployment.pools) == 1:
        servers = deployment.pools[0].servers
        return DecisionLog(options.decisions, len(servers.latencies), servers.num_ranks)
    pools = logged_pools(deployment.meta(options.meta))
    return DecisionLog(options.decisions, deployment.num_ranks, pools=pools)


class Running:
    """The servers of a deployment in a run.

    Attributes:
        made: of each pool.
        clocks: of all engines, those of servers that come up later included.
    """

    def __init__(
        self,
        env: Clock,
        deployment: Deployment,
        log: SimulationLog,
        options: RunOptions,
        *,
        clients_react: bool = True,
    ) -> None:
        """Make the servers, which do nothing yet.

        For `clients_react` see `ServerOptions`. Servers of several pools react to each other, too.
        """
        self.made: list[Made] = []
        self.clocks: list[TokenClock] = []
        self._env, self._deployment, self._options = env, deployment, options
        self._log = log
        self._clients_react = clients_react
        self._fleets: dict[str, ScaledServers] = {}
        self._logs: Mapping[str, SimulationLog] = {BOTH: log}
        self._transfers: Transfers | None = None
        self._handovers: Handovers | None = None
        if len(deployment.pools) > 1:
            log.builder.keep_further_times()
        if deployment.handover is not None:
            self._handovers = self._hand_over(log, deployment.handover)
        parts: dict[str, list[ScaledServers | Sequence[Target]]] = {}
        for pool in deployment.pools:
            parts.setdefault(pool.role, []).append(self._make(pool))
        routers = deployment.routers
        for role, router in routers.items():
            connect(router, self._replicas(role), env, self._logs[role])
        servers = {role: routed(routers[role], each) for role, each in parts.items()}
        servers[PREFILL if BOTH not in servers else BOTH].on_prediction = log.predicted
        if self._handovers is None:
            self._servers = servers[BOTH]
        else:
            self._handovers.connect(servers[PREFILL], servers[DECODE])

    def _hand_over(self, log: SimulationLog, how: HandoverOptions) -> Handovers:
        """What carries requests from prefill servers to decode servers."""
        ranks, received = {}, {}
        for pool in self._deployment.pools:
            for number in pool.numbers:
                ranks[number] = pool.servers.num_ranks
                if pool.received is not None:
                    received[number] = pool.received
        transfers = how.transfers(self._env, ranks.__getitem__, received.__getitem__)
        handovers = Handovers(
            self._env,
            log,
            transfers,
            message_ns=how.message_ns,
            after_prefill=how.after_prefill,
            chooses_late=how.chooses_late,
        )
        self._transfers = transfers
        self._logs = {PREFILL: PrefillLog(log, handovers), DECODE: DecodeLog(log, handovers)}
        return handovers

    def _make(self, pool: ServerPool) -> ScaledServers | Sequence[Target]:
        env, log, handovers = self._env, self._logs[pool.role], self._handovers
        make = partial(
            pool.servers.make,
            env,
            log,
            options=self._options,
            clients_react=self._clients_react,
        )
        if pool.autoscale is not None:
            scaled = self._fleets[pool.name] = ScaledServers(
                env,
                pool.servers,
                pool.autoscale,
                make=make,
                clocks=self.clocks,
                numbers=self._seats(pool),
                adopt=None if handovers is None else handovers.adopt,
            )
            scaled.scaler.passed = self._log.passed
            log.on_end.append(scaled.scaler.ended)
            self.made.append(scaled.made)
            return scaled
        check = None if handovers is None else partial(check_handovers, handovers)
        made = make(range(len(pool.servers.latencies)), and_check=check)
        self.made.append(made)
        self.clocks += made.clocks()
        entries = zip(pool.numbers, made.entries.items(), strict=True)
        return [Target(made.replicas[index], entry, number) for number, (index, entry) in entries]

    def _seats(self, pool: ServerPool) -> Sequence[int]:
        """How the log names the servers of a pool whose number changes.

        With several pools a server has the number of its first rank.
        """
        if len(self._deployment.pools) == 1:
            return range(len(pool.servers.latencies))
        return pool.numbers

    def _replicas(self, role: str | None = None) -> list[Replica]:
        """The servers of a role, or all, in the order of their numbers."""
        return [
            replica
            for pool, made in zip(self._deployment.pools, self.made, strict=True)
            if role in (None, pool.role)
            for replica in made.replicas.values()
        ]

    # ---- the run -------------------------------------------------------------------------------

    def submit(self, request: ScriptedRequest) -> None:
        self._log.account.arrived(request.spec.rid)
        if self._handovers is None:
            self._servers.choose(request.spec).entry.submit(request)
        else:
            self._handovers.submit(request)

    def give_up(self, rid: str) -> None:
        """The client of a request gives up now, if the request has not ended."""
        # Decode servers first: a prefill server that gives a request up tells its decode server.
        for replica in reversed(self._replicas()):
            replica.give_up(rid)

    def start_servers(self) -> None:
        """Start the servers' processes; `run` does so itself."""
        for replica in self._replicas():
            replica.start()

    def run(self) -> None:
        """Run to the end; call it after the clients were started."""
        for fleet in self._fleets.values():
            fleet.start()
        self.start_servers()
        run_to_end(self._env)

    def close(self, num_expected: int | None = None) -> None:
        """Verify the account of the run, to which `num_expected` requests shall have come."""
        self._log.account.close(self.engines, num_expected)

    # ---- what there is to say of it --------------------------------------------------------------

    @property
    def engines(self) -> list[EngineCore]:
        """By number in the log."""
        return [engine for replica in self._replicas() for engine in replica.engines]

    @property
    def num_steps(self) -> int:
        return sum(replica.num_steps for replica in self._replicas())

    def meta(self) -> dict[str, object]:
        """The log's meta data; see `RunLog`."""
        meta = {**self._deployment.meta(self._options.meta), "simulated_steps": self.num_steps}
        return {**meta, **self._fleet_stats(), **self._transfer_stats()}

    def _fleet_stats(self) -> dict[str, object]:
        """When servers came and went; nothing if all were there from beginning to end."""
        if not self._fleets:
            return {}
        gpus: dict[int, int] = {}
        events = []
        for pool in self._deployment.pools:
            seats = self._seats(pool)
            gpus |= dict.fromkeys(seats, pool.gpus)
            fleet = self._fleets.get(pool.name)
            if fleet is None:
                events += [FleetEvent(0, number, ReplicaState.UP) for number in seats]
            else:
                events += fleet.fleet.events
        num_named = self._deployment.num_ranks if len(self._deployment.pools) > 1 else len(gpus)
        # A rank that is not the first of its server has no GPUs of its own.
        of_each = [gpus.get(number, 0) for number in range(num_named)]
        return {FLEET: FleetLog(sorted(events, key=lambda event: event.t_ns), of_each).to_meta()}

    def _transfer_stats(self) -> dict[str, object]:
        if self._transfers is None:
            return {}
        stats = self._transfers.stats()
        names = ("num_transfers", "num_bytes", "num_failed", "num_retries", "queue_ns", "total_ns")
        return {"transfers": {name: getattr(stats, name) for name in names}}
