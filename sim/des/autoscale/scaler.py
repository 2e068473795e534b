"""Servers whose number changes: their metrics are sampled, and the fleet follows a rule.

How fast it may follow is the behaviour of Kubernetes' HorizontalPodAutoscaler. Source: Kubernetes,
pkg/controller/podautoscaler/horizontal.go: `stabilizeRecommendationWithBehaviors`,
`convertDesiredReplicasWithBehaviorRate`, `calculateScaleUpLimitWithScalingRules`,
`calculateScaleDownLimitWithBehaviors`, `recordInitialRecommendation`. Defaults:
pkg/apis/autoscaling/v2/defaults.go.
"""

import math
import operator
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sim.core.request import RequestSpec
from sim.core.units import NS_PER_S
from sim.des.autoscale.fleet import Fleet
from sim.des.autoscale.rules import LatencyMeter, Observed, ReplicaLoad, Rule, load_of
from sim.des.clock import AUTOSCALE, Clock, TimedEvent
from sim.des.replicas.replica import Replica, Wait
from sim.des.routers.router import RoutedServers, Router, Target
from sim.des.servers import Made, Servers
from sim.engine.account import check_nothing_kept
from sim.engine.records import RequestRecord
from sim.engine.request import TokenClock


class Pace(NamedTuple):
    """How fast a fleet may grow, or shrink.

    Attributes:
        window_ns: it follows the most cautious recommendation of this time.
        replicas: it may change by this many replicas in a period; None: no such limit.
        percent: it may change by this percentage in a period; None: no such limit.
        period_ns: the period. If both limits are given, the one that allows more counts.
    """

    window_ns: int
    replicas: int | None
    percent: float | None
    period_ns: int


class _Recommended:
    """The lowest, or the highest, recommendation of the last `window_ns`.

    `reaches(a, b)` says whether `a` is at least as low, or as high, as `b`. A recommendation that a
    later one reaches is dropped: it can never be the lowest, or highest, again.
    """

    def __init__(self, window_ns: int, reaches: Callable[[int, int], bool], first: int) -> None:
        self._window_ns, self._reaches = window_ns, reaches
        self._kept = deque([(0, first)])

    def with_latest(self, now_ns: int, number: int) -> int:
        """The extreme one, after a further recommendation."""
        kept = self._kept
        while kept and kept[0][0] <= now_ns - self._window_ns:
            kept.popleft()
        while kept and self._reaches(number, kept[-1][1]):
            kept.pop()
        kept.append((now_ns, number))
        return kept[0][1]


class PaceKeeper:
    """Decides how many replicas there shall be from what a rule recommends over time."""

    def __init__(self, up: Pace, down: Pace, sizes: tuple[int, int], num_initial: int) -> None:
        """Begin at time 0 with `num_initial` replicas, which counts as a recommendation.

        `sizes` are the smallest and the largest fleet.
        """
        self._up = up
        self._down = down
        self._fewest, self._most = sizes
        self._lowest = _Recommended(up.window_ns, operator.le, num_initial)
        self._highest = _Recommended(down.window_ns, operator.ge, num_initial)
        # When the number changed, and by how much.
        self._changes: list[tuple[int, int]] = []

    def follow(self, now_ns: int, current: int, recommended: int) -> int:
        """The number of replicas from now on.

        `now_ns` rises from call to call; `current` is the number up to now, `recommended` what the
        rule says now.
        """
        wanted = self._steadied(now_ns, current, recommended)
        if wanted > current:
            wanted = min(wanted, self._most, max(current, self._upper(now_ns, current)))
        elif wanted < current:
            wanted = max(wanted, self._fewest, min(current, self._lower(now_ns, current)))
        if wanted != current:
            longest_ns = max(self._up.period_ns, self._down.period_ns)
            self._changes = [change for change in self._changes if change[0] > now_ns - longest_ns]
            self._changes.append((now_ns, wanted - current))
        return wanted

    def _steadied(self, now_ns: int, current: int, recommended: int) -> int:
        """The number nearest to the current one that both windows allow.

        The fleet grows at most to the lowest recommendation of one window, and shrinks at most to
        the highest of the other.
        """
        most = self._lowest.with_latest(now_ns, recommended)
        fewest = self._highest.with_latest(now_ns, recommended)
        return min(max(current, most), fewest)

    def _upper(self, now_ns: int, current: int) -> int:
        """The most replicas that the pace allows; fewer than now if the fleet grew just before."""
        pace = self._up
        before = current - sum([by for by in self._changes_in(now_ns, pace) if by > 0])
        limits = []
        if pace.replicas is not None:
            limits.append(before + pace.replicas)
        if pace.percent is not None:
            limits.append(math.ceil(before * (1 + pace.percent / 100)))
        return max(limits, default=self._most)

    def _lower(self, now_ns: int, current: int) -> int:
        """The fewest replicas that the pace allows; more than now if it shrank just before."""
        pace = self._down
        before = current - sum([by for by in self._changes_in(now_ns, pace) if by < 0])
        limits = []
        if pace.replicas is not None:
            limits.append(before - pace.replicas)
        if pace.percent is not None:
            limits.append(int(before * (1 - pace.percent / 100)))
        return min(limits, default=self._fewest)

    def _changes_in(self, now_ns: int, pace: Pace) -> list[int]:
        return [by for at_ns, by in self._changes if at_ns > now_ns - pace.period_ns]


class Autoscale(NamedTuple):
    """How a fleet grows and shrinks.

    Attributes:
        rule: recommends a number of replicas.
        up, down: how fast the fleet follows.
        min_replicas, max_replicas: the smallest and the largest fleet.
        num_initial: replicas that are up at time 0.
        interval_ns: time from one decision to the next.
        sample_ns: time from one sample of the replicas' metrics to the next.
        startup_ns: how long a replica starts before it takes requests.
        gpus: GPUs of a replica.
    """

    rule: Rule
    up: Pace
    down: Pace
    min_replicas: int
    max_replicas: int
    num_initial: int
    interval_ns: int
    sample_ns: int
    startup_ns: int
    gpus: int = 1


_TOLD_SAMPLES = 4096


class Scaler:
    """The process that scales a fleet. It ends when nothing else happens any more.

    Attributes:
        passed: called with the time now and then, however little happens.
    """

    def __init__(self, env: Clock, fleet: Fleet, autoscale: Autoscale) -> None:
        self.passed: Callable[[int], None] = lambda _: None
        self._num_samples = 0
        self._env = env
        self._fleet = fleet
        self._autoscale = autoscale
        sizes = autoscale.min_replicas, autoscale.max_replicas
        self._keeper = PaceKeeper(autoscale.up, autoscale.down, sizes, autoscale.num_initial)
        self._latencies = LatencyMeter()
        self._samples: list[dict[int, ReplicaLoad]] = []
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
        """Sample and decide at fixed times; let replicas come up when their starts have ended."""
        env, fleet = self._env, self._fleet
        sample_ns, decide_ns = self._autoscale.sample_ns, self._autoscale.interval_ns
        self._expect_sample(sample_ns)
        env.num_watchers += 1
        while True:
            due_ns = min(sample_ns, decide_ns, fleet.next_up_ns)
            yield TimedEvent(env, due_ns - env.now_ns, AUTOSCALE)
            if env.is_idle:
                break
            if due_ns == fleet.next_up_ns:
                fleet.come_up()
            if due_ns == sample_ns:
                self._sample()
                sample_ns += self._autoscale.sample_ns
            if due_ns == decide_ns:
                self._decide()
                decide_ns += self._autoscale.interval_ns
            self._expect_sample(sample_ns)
        env.num_watchers -= 1

    def _expect_sample(self, sample_ns: int) -> None:
        for seat in self._fleet.up:
            seat.now.replica.next_sample_ns = sample_ns

    def _sample(self) -> None:
        self._num_samples += 1
        if not self._num_samples % _TOLD_SAMPLES:
            self.passed(self._env.now_ns)
        up, draining = self._fleet.up, self._fleet.draining
        serving = [seat.now.replica for seat in (*up, *draining)]
        self._latencies.sample(serving, self._env.now_ns)
        self._samples.append(
            {seat.number: load_of(seat.now.replica, seat.now.entry) for seat in up}
        )
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
            samples=self._samples,
            num_arrived=self._num_arrived,
            ttft_ms=ttft_ms,
            tpot_ms=tpot_ms,
        )
        self._samples, self._decided_ns, self._num_arrived = [], now_ns, 0
        recommended = self._autoscale.rule.recommend(seen)
        if recommended is not None:
            wanted = self._keeper.follow(now_ns, fleet.wanted, recommended)
            if wanted != fleet.wanted:
                fleet.scale_to(wanted)


class ScaledServers:
    """A fleet and its autoscaler.

    Attributes:
        fleet: says which replicas take requests.
        scaler: learns of requests, and decides.
        made: of each seat that has been up, its latest replica.
    """

    def __init__(
        self,
        env: Clock,
        servers: Servers,
        autoscale: Autoscale,
        *,
        make: Callable[[Sequence[int]], Made],
        clocks: list[TokenClock],
        numbers: Sequence[int],
        adopt: Callable[[Replica], None] | None = None,
    ) -> None:
        """Make the replicas that are up at time 0; `start` starts the autoscaler.

        `make` makes the replicas of seats, whose `numbers` are those of the log. `clocks` gets the
        clocks of all replicas that come up, now and later; `adopt` is called with each of them.
        """
        self._env = env
        self._servers = servers
        self._make_replicas = make
        self._clocks = clocks
        self._adopt = adopt
        self._runs = False
        self.made = Made({}, {})
        self.fleet = Fleet(env, self._make, numbers, startup_ns=autoscale.startup_ns)
        self.scaler = Scaler(env, self.fleet, autoscale)
        self.fleet.begin(autoscale.num_initial)

    @property
    def targets(self) -> Sequence[Target]:
        """The replicas that take requests now."""
        return [seat.now for seat in self.fleet.up]

    def has(self, number: int) -> bool:
        """Whether a number of the log is that of one of these servers or ranks."""
        servers = self._servers
        return 0 <= number - servers.first < len(servers.latencies) * servers.num_ranks

    def start(self) -> None:
        """Start the autoscaler; call it after the clients were started."""
        self._runs = True
        self._env.process(self.scaler.run())

    def _make(self, index: int) -> Target:
        """A new replica with empty caches. Its steps are counted on from those of the last one."""
        one = self._make_replicas([index])
        replica, entry = one.replicas[index], one.entries[index]
        last = self.made.replicas.get(index)
        if last is not None:
            for engine in last.engines:
                check_nothing_kept(engine, f"an earlier server {index}")
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
