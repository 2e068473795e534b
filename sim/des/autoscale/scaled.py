"""The servers of a simulation whose number changes."""

from sim.des.autoscale.fleet import Entered, Fleet
from sim.des.autoscale.scaler import Autoscale, Scaler
from sim.des.clock import Clock
from sim.des.routers.router import Router
from sim.des.servers import Made, Servers
from sim.des.traffic import SimulationLog
from sim.engine.token_clock import TokenClock
from sim.runlog.fleet import FLEET, FleetLog


class ScaledServers:
    """A fleet and its autoscaler.

    Attributes:
        fleet: takes the requests.
        made: the replicas of all numbers that have been up, each with the latest one.
        clocks: of all replicas that have ever been up.
    """

    def __init__(
        self,
        env: Clock,
        reports: SimulationLog,
        servers: Servers,
        router: Router,
        autoscale: Autoscale,
        *,
        clients_react: bool,
    ) -> None:
        """Make the replicas that are up at time 0; `start` starts the autoscaler."""
        self._env = env
        self._reports = reports
        self._servers = servers
        self._clients_react = clients_react
        self._gpus = [autoscale.gpus] * len(servers.latencies)
        self._runs = False
        self.made = Made({}, {})
        self.clocks: list[TokenClock] = []
        numbers = range(autoscale.max_replicas)
        self.fleet = Fleet(env, self._make, router, numbers, startup_ns=autoscale.startup_ns)
        self._scaler = Scaler(env, self.fleet, autoscale)
        self.fleet.begin(autoscale.num_initial)
        reports.on_end = self._scaler.ended

    def start(self) -> None:
        """Start the autoscaler; call it after the clients were started."""
        self._runs = True
        self._env.process(self._scaler.run())

    def meta(self) -> dict[str, object]:
        """What the log's meta data say of the fleet."""
        return {FLEET: FleetLog(self.fleet.events, self._gpus).to_meta()}

    def _make(self, number: int) -> Entered:
        """A new replica with empty caches. Its steps are counted on from those of the last one."""
        one = self._servers.make(
            self._env, self._reports, [number], clients_react=self._clients_react
        )
        replica, entry = one.replicas[number], one.entries[number]
        last = self.made.replicas.get(number)
        if last is not None:
            replica.num_steps = last.num_steps
        self.made.replicas[number], self.made.entries[number] = replica, entry
        self.clocks += one.clocks()
        if self._runs:
            replica.start()
        return Entered(replica, entry)
