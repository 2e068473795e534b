"""Servers of a simulation whose number changes."""

from collections.abc import Callable, Sequence

from sim.core.request import RequestSpec
from sim.des.autoscale.fleet import Fleet
from sim.des.autoscale.scaler import Autoscale, Scaler
from sim.des.clock import Clock
from sim.des.replicas.replica import Replica
from sim.des.routed_servers import RoutedServers, Target
from sim.des.routers.router import Router
from sim.des.servers import Made, RunOptions, Servers
from sim.des.traffic import SimulationLog
from sim.engine.token_clock import TokenClock


class ScaledServers:
    """A fleet and its autoscaler.

    Attributes:
        fleet: says which replicas take requests.
        scaler: learns of requests, and decides.
        made: the replicas of all seats that have been up, each with the latest one.
    """

    def __init__(  # noqa: PLR0913 - what its replicas need
        self,
        env: Clock,
        reports: SimulationLog,
        servers: Servers,
        autoscale: Autoscale,
        options: RunOptions,
        *,
        clients_react: bool,
        clocks: list[TokenClock],
        numbers: Sequence[int],
        adopt: Callable[[Replica], None] | None = None,
    ) -> None:
        """Make the replicas that are up at time 0; `start` starts the autoscaler.

        Args:
            env: the clock.
            reports: the log of the replicas.
            servers: settings and step times of all seats.
            autoscale: how the fleet grows and shrinks.
            options: how to simulate.
            clients_react: see `ServerOptions`.
            clocks: gets the clocks of all replicas that come up, now and later.
            numbers: the replicas' numbers in what the log says of the fleet.
            adopt: called with each replica that comes up; None: nobody asks.
        """
        self._env = env
        self._reports = reports
        self._servers = servers
        self._options = options
        self._clients_react = clients_react
        self._clocks = clocks
        self._adopt = adopt
        self._runs = False
        self.made = Made({}, {})
        self.fleet = Fleet(env, self._make, numbers, startup_ns=autoscale.startup_ns)
        self.scaler = Scaler(env, self.fleet, autoscale)
        self.fleet.begin(autoscale.num_initial)
        reports.on_end.append(self.scaler.ended)

    @property
    def targets(self) -> Sequence[Target]:
        """The replicas that take requests now."""
        return [seat.now for seat in self.fleet.up]

    def has(self, number: int) -> bool:
        """Whether the server with this number in the log is one of these."""
        servers = self._servers
        return 0 <= number - servers.first < len(servers.latencies) * servers.num_ranks

    def start(self) -> None:
        """Start the autoscaler; call it after the clients were started."""
        self._runs = True
        self._env.process(self.scaler.run())

    def _make(self, index: int) -> Target:
        """A new replica with empty caches. Its steps are counted on from those of the last one."""
        one = self._servers.make(
            self._env, self._reports, [index], self._options, clients_react=self._clients_react
        )
        replica, entry = one.replicas[index], one.entries[index]
        last = self.made.replicas.get(index)
        if last is not None:
            replica.num_steps = last.num_steps
        self.made.replicas[index], self.made.entries[index] = replica, entry
        self._clocks += one.clocks()
        if self._adopt is not None:
            self._adopt(replica)
        if self._runs:
            replica.start()
        return Target(replica, entry, self._servers.number(index))


def routed(router: Router, parts: Sequence[ScaledServers | Sequence[Target]]) -> RoutedServers:
    """The servers of fleets, and those whose number is constant, in this order."""
    fleets = [part for part in parts if isinstance(part, ScaledServers)]

    def targets() -> list[Target]:
        each = (part.targets if isinstance(part, ScaledServers) else part for part in parts)
        return [target for part in each for target in part]

    servers = RoutedServers(targets(), router)

    def chosen(spec: RequestSpec, target: Target) -> None:
        for fleet in fleets:
            if fleet.has(target.number):
                fleet.scaler.sent(spec.rid)

    if fleets:
        servers.on_choice = chosen
        for fleet in fleets:
            fleet.fleet.on_change = lambda: servers.offer(targets())
    return servers
