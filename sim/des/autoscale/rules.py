"""Rules of autoscaling: how many replicas the load of the last interval needs.

A rule is asked at fixed times, and recommends a number of replicas; `sim.des.autoscale.scaler`
decides how fast the fleet follows. docs/how-to/autoscale.md#rules describes the rules for users.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple, Protocol

import numpy as np

from sim.core.request import Status
from sim.core.units import NS_PER_MS
from sim.des.replicas.one_server import FrontEnd
from sim.des.replicas.replica import Replica
from sim.engine.records import RequestRecord


class ReplicaLoad(NamedTuple):
    """The metrics of one replica at one time.

    Attributes:
        waiting: requests that were sent to it, and are not running.
        running: requests that hold a slot.
        kv_used: share of the KV pool that running requests hold. What is only cached is not used.
        kv_wanted: tokens of all waiting and running requests as a share of the KV pool; the tokens
            that requests share count for each of them.
    """

    waiting: int
    running: int
    kv_used: float
    kv_wanted: float


def load_of(replica: Replica, entry: Replica | FrontEnd) -> ReplicaLoad:
    """The metrics of a replica now; `entry` takes its requests: itself, or its front end."""
    running = pool = used = wanted = 0
    for engine in replica.engines:
        running += engine.scheduler.num_slots_used
        pool += engine.kv.pool_tokens
        used += engine.kv.pool_tokens - engine.kv.free_tokens - engine.kv.evictable_tokens
        wanted += sum([request.num_tokens for request in engine.requests.values()])
    return ReplicaLoad(max(entry.num_unfinished - running, 0), running, used / pool, wanted / pool)


class Observed(NamedTuple):
    """What a rule may use: everything since the rule decided last.

    Attributes:
        interval_s: time since the last decision.
        num_wanted: replicas that are up or starting.
        num_up: replicas that take requests.
        num_draining: replicas that take no more requests, and have some left.
        samples: the loads of the replicas that were up, by number, at each sample.
        ttft_ms, tpot_ms: of the requests that got their first token, and of those that finished.
    """

    now_ns: int
    interval_s: float
    num_wanted: int
    num_up: int
    num_draining: int
    samples: Sequence[Mapping[int, ReplicaLoad]]
    num_arrived: int
    ttft_ms: Sequence[float]
    tpot_ms: Sequence[float]

    @property
    def is_changing(self) -> bool:
        """Whether a replica is starting or draining."""
        return self.num_wanted != self.num_up or self.num_draining > 0


class LatencyMeter:
    """Collects TTFT when a first token comes, and TPOT when a request finishes."""

    def __init__(self) -> None:
        self._ttft_ms: list[float] = []
        self._tpot_ms: list[float] = []
        self._sampled_ns = -1

    def sample(self, replicas: Sequence[Replica], now_ns: int) -> None:
        """Note the first tokens since the last sample."""
        for replica in replicas:
            for engine in replica.engines:
                for request in engine.requests.values():
                    self._first_token(request.spec.arrival_ns, request.first_token_ns)
        self._sampled_ns = now_ns

    def ended(self, record: RequestRecord) -> None:
        self._first_token(record.spec.arrival_ns, record.first_token_ns)
        if record.status is Status.FINISHED and record.output_tokens > 1:
            decode_ns = record.finish_ns - record.first_token_ns
            self._tpot_ms.append(decode_ns / (record.output_tokens - 1) / NS_PER_MS)

    def take(self) -> tuple[list[float], list[float]]:
        """TTFTs and TPOTs in ms since they were taken last."""
        taken = self._ttft_ms, self._tpot_ms
        self._ttft_ms, self._tpot_ms = [], []
        return taken

    def _first_token(self, arrival_ns: int, first_token_ns: int) -> None:
        if first_token_ns > self._sampled_ns:
            self._ttft_ms.append((first_token_ns - arrival_ns) / NS_PER_MS)


class Rule(Protocol):
    """Recommends how many replicas there should be. It has no state."""

    def recommend(self, seen: Observed) -> int | None:
        """The number of replicas, up or starting; None: nothing is known, so keep the number."""


# The sum of a metric over all replicas; None: not known.
Total = Callable[[Observed], float | None]


def mean_total(metric: Callable[[ReplicaLoad], float]) -> Total:
    """The sum of a metric over the replicas that are up, as a mean over the samples."""

    def total(seen: Observed) -> float | None:
        sums = [sum(map(metric, loads.values())) for loads in seen.samples]
        return fmean(sums) if sums else None

    return total


def arrival_rate(seen: Observed) -> float | None:
    """Requests that arrived, per second."""
    return seen.num_arrived / seen.interval_s


class TargetRule:
    """As many replicas as have the target on average: Kubernetes' rule for a metric per replica.

    desired = ceil(total / target), or the number as it is while the metric is near the target.

    Source: Kubernetes, pkg/controller/podautoscaler/replica_calculator.go,
    `GetExternalPerPodMetricReplicas`; KEDA's triggers of type AverageValue use it.

    Args:
        total: the sum of the metric over all replicas.
        target: of each replica.
        tolerance: the number stays while the metric per replica is off by no more than this share.
    """

    def __init__(self, total: Total, target: float, tolerance: float) -> None:
        self._total = total
        self._target = target
        self._tolerance = tolerance

    def recommend(self, seen: Observed) -> int | None:
        total = self._total(seen)
        if total is None:
            return None
        if abs(1 - total / (self._target * seen.num_wanted)) <= self._tolerance:
            return seen.num_wanted
        return math.ceil(total / self._target)


class SloRule:
    """Grows by how much the latencies exceed the SLO, and shrinks by one while latencies allow.

    Growth is Kubernetes' rule for a value of the whole fleet (replica_calculator.go,
    `getUsageRatioReplicaCount`): desired = ceil(replicas that are up * ratio), where the ratio is
    that of the measured percentile to its limit. A latency says little about how many replicas are
    too many. So the fleet shrinks as NVIDIA Dynamo's planner lets it (1.6.1,
    planner/core/load_scaling.py, `_scale_decision`): by one, if what is measured, times
    n / (n - 1), stays within a share of the limit, and the requests fit into the KV of one replica
    less. Dynamo predicts latencies with a model of the engine; here they are measured.

    Args:
        limits_ms: `ttft` and `tpot`, or one of them.
        percentile: which percentile of the interval's latencies is compared with the limits.
        tolerance: no growth while a limit is exceeded by no more than this share.
        shrink_below: the share of the limits that must be met with one replica less.
    """

    def __init__(
        self,
        limits_ms: Mapping[str, float],
        percentile: float,
        *,
        tolerance: float,
        shrink_below: float,
    ) -> None:
        self._limits_ms = limits_ms
        self._percentile = percentile
        self._tolerance = tolerance
        self._shrink_below = shrink_below

    def recommend(self, seen: Observed) -> int | None:
        measured = {"ttft": seen.ttft_ms, "tpot": seen.tpot_ms}
        ratios = [
            float(np.percentile(measured[name], self._percentile)) / limit_ms
            for name, limit_ms in self._limits_ms.items()
            if len(measured[name])
        ]
        ratio = max(ratios, default=0.0)
        if ratio > 1 + self._tolerance:
            return max(math.ceil(seen.num_up * ratio), seen.num_wanted)
        if seen.is_changing or seen.num_up == 1 or not seen.samples:
            return seen.num_wanted
        more = seen.num_up / (seen.num_up - 1)
        fits = all(load.kv_wanted * more < 1 for load in seen.samples[-1].values())
        return seen.num_up - (fits and ratio * more <= self._shrink_below)


class DynamoRule:
    """One more if a replica's KV is overbooked, one less if all have KV free: Dynamo's planner.

    A replica's load is the share of its KV pool that its requests need, also those that wait.
    Nothing is decided while a replica is starting or draining. The fleet does not shrink if the
    load of the busiest replica would then call for growth.

    Source: NVIDIA Dynamo 1.6.1, planner/core/load_scaling.py, `_agg_easy_decision` and
    `_consolidation_safe_easy_target`.

    Args:
        grow_above, shrink_below: shares of the KV pool. Dynamo has 1 and 0.6 with target
            `throughput`, and 0.4 and 0.1 with `latency`.
    """

    def __init__(self, grow_above: float, shrink_below: float) -> None:
        self._grow_above = grow_above
        self._shrink_below = shrink_below

    def recommend(self, seen: Observed) -> int | None:
        if seen.is_changing or not seen.samples:
            return seen.num_wanted
        loads, num_up = [load.kv_wanted for load in seen.samples[-1].values()], seen.num_up
        if any(load > self._grow_above for load in loads):
            return num_up + 1
        if num_up > 1 and all(load < self._shrink_below for load in loads):
            stays = max(loads) * num_up / (num_up - 1) >= self._grow_above
            return num_up if stays else num_up - 1
        return num_up


class Thresholds(NamedTuple):
    """Of `SaturationRule`, under the names of its source."""

    kv_cache_threshold: float
    queue_length_threshold: float
    kv_spare_trigger: float
    queue_spare_trigger: float


class SaturationRule:
    """One more if replicas have little free, one less if the rest has enough: llm-d's rule.

    Each replica counts with its highest KV use and its longest queue of the interval. A replica at
    or above a threshold is saturated. The others have spare capacity if their means stay below the
    thresholds by the triggers. Nothing is decided while a replica is starting or draining.

    Source: llm-d-workload-variant-autoscaler at b08b1c77 (2026-02-19, after 0.5.1),
    internal/saturation/analyzer.go: `AnalyzeModelSaturation`, `shouldScaleUp`,
    `isScaleDownSafe`, `CalculateSaturationTargets`.
    """

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds

    def recommend(self, seen: Observed) -> int | None:
        if seen.is_changing or not seen.samples:
            return seen.num_wanted
        limits = self._thresholds
        highest = [_highest(seen.samples, number) for number in seen.samples[-1]]
        free = [
            (kv, queue)
            for kv, queue in highest
            if kv < limits.kv_cache_threshold and queue < limits.queue_length_threshold
        ]
        if not free:
            return seen.num_up + 1
        kv = fmean([kv for kv, _ in free])
        queue = fmean([queue for _, queue in free])
        if not self._has_spare(kv, queue):
            return seen.num_up + 1
        if len(free) < 2:
            return seen.num_up
        more = len(free) / (len(free) - 1)
        return seen.num_up - self._has_spare(kv * more, queue * more)

    def _has_spare(self, kv: float, queue: float) -> bool:
        limits = self._thresholds
        return (
            limits.kv_cache_threshold - kv >= limits.kv_spare_trigger
            and limits.queue_length_threshold - queue >= limits.queue_spare_trigger
        )


def _highest(samples: Sequence[Mapping[int, ReplicaLoad]], number: int) -> tuple[float, int]:
    """The highest KV use and the longest queue of a replica."""
    loads = [sample[number] for sample in samples if number in sample]
    return max(load.kv_used for load in loads), max(load.waiting for load in loads)


class ScheduleRule:
    """As many replicas as a timetable says: KEDA's trigger `cron`.

    Args:
        steps: times in ns, ascending from 0, and the number of replicas from each of them on.
        period_ns: the timetable begins again after this time; None: it does not.
    """

    def __init__(self, steps: Sequence[tuple[int, int]], period_ns: int | None) -> None:
        self._steps = steps
        self._period_ns = period_ns

    def recommend(self, seen: Observed) -> int | None:
        now_ns = seen.now_ns if self._period_ns is None else seen.now_ns % self._period_ns
        return [number for from_ns, number in self._steps if from_ns <= now_ns][-1]
