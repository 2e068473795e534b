"""How SGLang deals requests to the ranks of DP attention.

Source: SGLang 0.5.23, managers/data_parallel_controller.py (`DataParallelController`, `DPBudget`),
managers/load_snapshot.py, and `publish_load_snapshot` in managers/scheduler.py. docs/explanation/
ranks.md has the rules.
"""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

from sim.core.arrays import Int64
from sim.core.batch import ForwardMode
from sim.core.tokens import mixed
from sim.core.units import NS_PER_MS
from sim.engine.core import EngineCore
from sim.engine.ranks import RankModes, RankRules

ROUND_ROBIN = "round_robin"
BY_ROOM = "follow_bootstrap_room"
TOTAL_REQUESTS = "total_requests"
# The controller reads the loads at most this often.
_READ_INTERVAL_NS = 20 * NS_PER_MS
# A rank publishes its load at every prefill step, and at every 15th of the others.
_PUBLISH_INTERVAL = 15


class Load(NamedTuple):
    """What a rank publishes: its requests, and its tokens in use or waiting; both as a number."""

    num_requests: int
    num_tokens: int


class SglangRanks(RankRules):
    """In turn, at random, or the rank with the smallest load that the controller knows of."""

    def __init__(self, engines: Sequence[EngineCore], method: str, *, overlaps: bool) -> None:
        """`method` is the name of a `load_balance_method`; `overlaps`: scheduling does."""
        super().__init__(engines)
        self._overlaps = overlaps
        self._by_room = method == BY_ROOM
        self._publishes = method not in (ROUND_ROBIN, BY_ROOM)
        self._by_requests = method == TOTAL_REQUESTS
        self._next = 0
        self._read_ns: int | None = None
        self._known = [Load(0, 0)] * len(engines)
        # What was published and not read yet.
        self._published: list[Load | None] = [None] * len(engines)
        self._num_unpublished = [0] * len(engines)
        # Results of the steps being passed in one go that `_published` knows of.
        self._num_passed = 0

    def choose(self, num_prompt_tokens: int, now_ns: int, front_end: int = 0, rid: str = "") -> int:
        if self._by_room:
            # `bootstrap_room`, a random number that the router draws for each request.
            return mixed(zlib.crc32(rid.encode())) % len(self.engines)
        if not self._publishes:
            chosen = self._next
            self._next = (chosen + 1) % len(self.engines)
            return chosen
        if self._read_ns is None or now_ns - self._read_ns >= _READ_INTERVAL_NS:
            self._read_ns = now_ns
            self._read()
        keys = [
            (load.num_requests if self._by_requests else load.num_tokens, load.num_requests)
            for load in self._known
        ]
        chosen = keys.index(min(keys))
        load = self._known[chosen]
        num_tokens = load.num_tokens + num_prompt_tokens
        self._known[chosen] = Load(load.num_requests + 1, num_tokens)
        return chosen

    def passed(self, known_ns: Int64) -> None:
        if not self._publishes:
            return
        num_more = len(known_ns) - self._num_passed
        self._num_passed = len(known_ns)
        for rank, num_unpublished in enumerate(self._num_unpublished):
            num_left = (num_unpublished + num_more) % _PUBLISH_INTERVAL
            if num_unpublished + num_more >= _PUBLISH_INTERVAL:
                self._publish(rank, num_results=self._num_passed - num_left)
            self._num_unpublished[rank] = num_left

    def processing(self, modes: RankModes) -> None:
        if not self._publishes:
            return
        self._num_passed = 0
        for rank, mode in enumerate(modes):
            self._num_unpublished[rank] += 1
            prefills = mode is not None and mode is not ForwardMode.DECODE
            if prefills or self._num_unpublished[rank] >= _PUBLISH_INTERVAL:
                self._publish(rank)

    def idle(self, now_ns: int) -> bool:
        if self._publishes:
            for rank in range(len(self.engines)):
                self._publish(rank)
        return False

    def _read(self) -> None:
        for rank, load in enumerate(self._published):
            if load is not None:
                self._known[rank] = load
                self._published[rank] = None

    def _publish(self, rank: int, num_results: int = 0) -> None:
        """Publish what a rank has now, or within steps that are passed at once.

        `num_results` is then the number of those steps whose results are known. As in SGLang,
        requests between their prefill and the next decision count as neither.
        """
        engine = self.engines[rank]
        state = engine.state()
        # Under overlap scheduling one more step has begun than has ended.
        num_begun = num_results - (not self._overlaps) if num_results else 0
        num_tokens = state.used_tokens + engine.pages_of_steps(num_begun) * engine.kv.page_size
        waiting = engine.scheduler.waiting_requests()
        num_tokens += sum([request.num_tokens for request in waiting])
        self._published[rank] = Load(state.running + state.queue, num_tokens)
        self._num_unpublished[rank] = 0
