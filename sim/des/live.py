"""Simulated servers that people send requests to while they run.

The simulation follows a clock that its driver reads, such as the wall clock: `advance` lets happen
what is due, and a request arrives at the time up to which the simulation was advanced.

    live.advance(now_ns)          # steps that have ended until now give their tokens
    live.submit(request)          # it arrives now
    next_ns = live.next_ns        # nothing happens before, unless a request arrives
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from sim.core.errors import InputError
from sim.core.request import RequestSpec
from sim.des.clock import Clock
from sim.des.replica import Replica
from sim.des.routers.connect import connect
from sim.des.routers.router import Router, seen_replicas
from sim.des.servers import Servers
from sim.des.traffic import SimulationLog
from sim.engine.core import EngineCore
from sim.engine.records import RequestRecord
from sim.engine.request import Request
from sim.runlog import RunLog
from sim.runlog.builder import StepRun
from sim.workload.workload import ScriptedRequest


class Listener(Protocol):
    """What learns of tokens and ends."""

    def generated(self, rid: str, num_tokens: int) -> None:
        """A live request has this many output tokens now."""

    def over(self, record: RequestRecord) -> None:
        """A request has ended."""


class LiveClock(Clock):
    """A clock that does not skip what has not happened yet.

    Attributes:
        until_ns: up to when the simulation may go.
    """

    def __init__(self) -> None:
        super().__init__()
        self.until_ns = 0

    def skip_to(self, time_ns: int) -> bool:
        return time_ns <= self.until_ns and super().skip_to(time_ns)

    @property
    def next_ns(self) -> int | None:
        """When the next event is due; None: there is none."""
        return int(self._queue[0][0]) if self._queue else None


class LiveLog(SimulationLog):
    """The log of live servers; it notes whose tokens the latest steps made.

    Attributes:
        rids: requests in the latest steps.
        ended: records of the requests that have just ended.
    """

    def __init__(self, *, keeps: bool) -> None:
        super().__init__()
        self.rids: dict[str, None] = {}
        self.ended: list[RequestRecord] = []
        self._keeps = keeps

    def submitted(self, spec: RequestSpec, replica: int) -> None:
        if self._keeps:
            super().submitted(spec, replica)

    def stepped(self, run: StepRun) -> None:
        if self._keeps:
            super().stepped(run)
        else:
            self._tell_followers(run)
        self.rids.update(dict.fromkeys([row.rid for row in run.batch.prefill if row.samples]))
        self.rids.update(dict.fromkeys(run.batch.decode_rids))

    def over(self, records: Iterable[RequestRecord], now_ns: int) -> None:
        records = list(records)
        if self._keeps:
            super().over(records, now_ns)
        else:
            self._tell_followers_of_ends(records)
        self.ended += records


class LiveServers:
    """The servers of a scenario, without a workload of their own."""

    def __init__(
        self, servers: Servers, router: Router, listener: Listener, *, keeps_log: bool = True
    ) -> None:
        """Make the servers, which are simulated step by step, without fast-forward.

        Args:
            servers: the deployment.
            router: chooses a server for each request.
            listener: learns of tokens and ends.
            keeps_log: whether `log` is wanted; without, memory does not grow with the run.
        """
        self._servers = servers._replace(options=replace(servers.options, fast_forward=False))
        self._router, self._listener = router, listener
        self._env, self._log = LiveClock(), LiveLog(keeps=keeps_log)
        made = self._servers.make(
            self._env, self._log, range(len(servers.latencies)), clients_react=False
        )
        self._made, self._entries = made, list(made.entries.values())
        self._seen = seen_replicas(router, self._entries)
        connect(router, list(made.replicas.values()), self._env, self._log)
        self._specs: dict[str, tuple[ScriptedRequest, Replica]] = {}
        for replica in made.replicas.values():
            replica.start()
        self.advance(0)

    @property
    def now_ns(self) -> int:
        return self._env.now_ns

    @property
    def next_ns(self) -> int | None:
        """When something happens next; None: nothing does, until a request arrives."""
        return self._env.next_ns

    @property
    def engines(self) -> list[EngineCore]:
        return [engine for replica in self._made.replicas.values() for engine in replica.engines]

    def advance(self, until_ns: int) -> None:
        """Let everything happen that is due until this time, which does not fall.

        Raises:
            InputError: a latency model cannot go on.
        """
        env = self._env
        env.until_ns = max(until_ns, env.until_ns)
        while (next_ns := env.next_ns) is not None and next_ns <= env.until_ns:
            try:
                env.step()
            except InputError as copy:
                # SimPy raises a copy, which does not know its key any more.
                original = copy.__cause__
                raise original if isinstance(original, InputError) else copy from None
            self._tell()
        env.skip_to(env.until_ns)

    def move_to(self, time_ns: int) -> None:
        """Set the clock, before what is due at that very time."""
        self._env.until_ns = time_ns
        self._env.skip_to(time_ns)

    def submit(self, request: ScriptedRequest) -> None:
        """A request arrives now."""
        request = request.sent_at(self._env.now_ns)
        number = self._router.choose(request.spec, self._seen)
        self._specs[request.spec.rid] = request, self._made.replicas[number]
        self._entries[number].submit(request)
        self._tell()

    def cancel(self, rid: str) -> None:
        """The client of a request has gone."""
        known = self._specs.get(rid)
        if known is None:
            return
        request, replica = known
        # If it is still in the front end, its server learns this when it gets the request.
        request.spec.gives_up_ns = self._env.now_ns - request.spec.arrival_ns
        replica.give_up(rid)
        self.advance(self._env.now_ns)

    def log(self) -> RunLog:
        """The run log so far; afterwards the log is empty."""
        meta = {**self._servers.meta(), "simulated_steps": self.num_steps}
        return self._log.builder.build(self._made.clocks(), meta)

    @property
    def num_steps(self) -> int:
        return sum(replica.num_steps for replica in self._made.replicas.values())

    def _tell(self) -> None:
        """Tell the listener of new tokens and ends."""
        log = self._log
        if log.rids:
            rids, log.rids = log.rids, {}
            for rid in rids:
                known = self._specs.get(rid)
                request = None if known is None else _live_request(known[1], rid)
                if request is not None:
                    self._listener.generated(rid, request.num_generated)
        if log.ended:
            ended, log.ended = log.ended, []
            for record in ended:
                self._specs.pop(record.spec.rid, None)
                self._listener.over(record)


def _live_request(replica: Replica, rid: str) -> Request | None:
    for engine in replica.engines:
        request = engine.requests.get(rid)
        if request is not None:
            return request
    return None
