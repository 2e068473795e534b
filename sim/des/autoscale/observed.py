"""What an autoscaler knows of its replicas: their own metrics, and the latencies of requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sim.core.request import Status
from sim.core.units import NS_PER_MS
from sim.des.replicas.front_end import FrontEnd
from sim.des.replicas.replica import Replica
from sim.engine.records import RequestRecord


class Load(NamedTuple):
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


def load_of(replica: Replica, entry: Replica | FrontEnd) -> Load:
    """The metrics of a replica now; `entry` is what its requests enter."""
    running = pool = used = wanted = 0
    for engine in replica.engines:
        running += engine.scheduler.num_slots_used
        pool += engine.kv.pool_tokens
        used += engine.kv.pool_tokens - engine.kv.free_tokens - engine.kv.evictable_tokens
        wanted += sum([request.num_tokens for request in engine.requests.values()])
    return Load(max(entry.num_unfinished - running, 0), running, used / pool, wanted / pool)


@dataclass(frozen=True, slots=True)
class Observed:
    """What a rule may use: everything since the rule decided last.

    Attributes:
        now_ns: the time of the decision.
        interval_s: time since the last decision.
        num_wanted: replicas that are up or starting.
        num_up: replicas that take requests.
        num_draining: replicas that take no more requests, and have some left.
        looks: the loads of the replicas that were up, by number, at each look.
        num_arrived: requests that arrived.
        ttft_ms, tpot_ms: of the requests that got their first token, and of those that finished.
    """

    now_ns: int
    interval_s: float
    num_wanted: int
    num_up: int
    num_draining: int
    looks: Sequence[Mapping[int, Load]]
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
        self._looked_ns = -1

    def look(self, replicas: Sequence[Replica], now_ns: int) -> None:
        """Note the first tokens since the last look."""
        for replica in replicas:
            for engine in replica.engines:
                for request in engine.requests.values():
                    self._first_token(request.spec.arrival_ns, request.first_token_ns)
        self._looked_ns = now_ns

    def ended(self, record: RequestRecord) -> None:
        """A request has ended."""
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
        if first_token_ns > self._looked_ns:
            self._ttft_ms.append((first_token_ns - arrival_ns) / NS_PER_MS)
