"""Looks at a fleet's replicas, asks the rule, and has the fleet follow it."""

from typing import NamedTuple

from sim.core.units import NS_PER_S
from sim.des.autoscale.fleet import Fleet
from sim.des.autoscale.observed import LatencyMeter, Load, Observed, load_of
from sim.des.autoscale.pace import Follower, Pace
from sim.des.autoscale.rules import Rule
from sim.des.clock import LOOK, Clock, TimedEvent
from sim.des.replicas.replica import Wait
from sim.engine.records import RequestRecord


class Autoscale(NamedTuple):
    """How a fleet grows and shrinks.

    Attributes:
        rule: recommends a number of replicas.
        up, down: how fast the fleet follows.
        min_replicas, max_replicas: the smallest and the largest fleet.
        num_initial: replicas that are up at time 0.
        interval_ns: time from one decision to the next.
        look_ns: time from one look at the replicas' metrics to the next.
        startup_ns: how long a replica starts before it takes requests.
        gpus: GPUs of a replica, for the log.
    """

    rule: Rule
    up: Pace
    down: Pace
    min_replicas: int
    max_replicas: int
    num_initial: int
    interval_ns: int
    look_ns: int
    startup_ns: int
    gpus: int = 1


class Scaler:
    """The process that scales a fleet. It ends when nothing else happens any more."""

    def __init__(self, env: Clock, fleet: Fleet, autoscale: Autoscale) -> None:
        self._env = env
        self._fleet = fleet
        self._autoscale = autoscale
        sizes = autoscale.min_replicas, autoscale.max_replicas
        self._follower = Follower(autoscale.up, autoscale.down, sizes, autoscale.num_initial)
        self._latencies = LatencyMeter()
        self._looks: list[dict[int, Load]] = []
        self._decided_ns = 0
        self._num_arrived = 0
        # Requests that were sent to the fleet and have not ended.
        self._live: set[str] = set()

    def sent(self, rid: str) -> None:
        """A request is sent to the fleet now."""
        self._num_arrived += 1
        self._live.add(rid)

    def ended(self, record: RequestRecord) -> None:
        """A request has ended, perhaps one of another fleet."""
        if record.spec.rid in self._live:
            self._live.remove(record.spec.rid)
            self._latencies.ended(record)
        self._fleet.ended()

    def run(self) -> Wait:
        """Look and decide at fixed times, and let replicas come up when their starts have ended."""
        env, fleet = self._env, self._fleet
        look_ns, decide_ns = self._autoscale.look_ns, self._autoscale.interval_ns
        self._expect_look(look_ns)
        env.num_watchers += 1
        while True:
            due_ns = min(look_ns, decide_ns, fleet.next_up_ns)
            yield TimedEvent(env, due_ns - env.now_ns, LOOK)
            if env.is_idle:
                break
            if due_ns == fleet.next_up_ns:
                fleet.come_up()
            if due_ns == look_ns:
                self._look()
                look_ns += self._autoscale.look_ns
            if due_ns == decide_ns:
                self._decide()
                decide_ns += self._autoscale.interval_ns
            self._expect_look(look_ns)
        env.num_watchers -= 1

    def _expect_look(self, look_ns: int) -> None:
        for seat in self._fleet.up:
            seat.now.replica.looked_at_ns = look_ns

    def _look(self) -> None:
        up, draining = self._fleet.up, self._fleet.draining
        serving = [seat.now.replica for seat in (*up, *draining)]
        self._latencies.look(serving, self._env.now_ns)
        self._looks.append({seat.number: load_of(seat.now.replica, seat.now.entry) for seat in up})
        self._fleet.start_missing()

    def _decide(self) -> None:
        now_ns, fleet = self._env.now_ns, self._fleet
        ttft_ms, tpot_ms = self._latencies.take()
        seen = Observed(
            now_ns=now_ns,
            interval_s=(now_ns - self._decided_ns) / NS_PER_S,
            num_wanted=fleet.wanted,
            num_up=len(fleet.up),
            num_draining=len(fleet.draining),
            looks=self._looks,
            num_arrived=self._num_arrived,
            ttft_ms=ttft_ms,
            tpot_ms=tpot_ms,
        )
        self._looks, self._decided_ns, self._num_arrived = [], now_ns, 0
        recommended = self._autoscale.rule.recommend(seen)
        if recommended is not None:
            wanted = self._follower.follow(now_ns, fleet.wanted, recommended)
            if wanted != fleet.wanted:
                fleet.scale_to(wanted)
