"""How vLLM deals requests to the ranks of data parallelism, and how long ranks run without work.

Source: vLLM 0.33.0 and 0.19.0, v1/engine/core_client.py (`DPLBAsyncMPClient`),
v1/engine/coordinator.py (`DPCoordinatorProc`) and v1/engine/core.py (`DPEngineCoreProc`).
docs/explanation/ranks.md has the rules.
"""

from collections.abc import Sequence

from sim.core.arrays import Int64
from sim.core.units import NS_PER_MS
from sim.engine.core import EngineCore
from sim.engine.ranks import RankModes, RankRules
from sim.vllm.config import VllmConfig

_WAITING_WEIGHT = 4
# What a waiting request counts more than a running one, for each share of a full pool beyond half.
_FULL_POOL_WEIGHT, _HALF = 6.0, 0.5
_CHANGED_INTERVAL_NS = 100 * NS_PER_MS
_UNCHANGED_INTERVAL_NS = 5_000 * NS_PER_MS
_QUIET_NS = 50 * NS_PER_MS

# Waiting and running requests, and the share of the pool that is in use.
Counts = tuple[int, int, float]


class VllmRanks(RankRules):
    """The rank with the smallest score that the front end knows of.

    Ranks send their counts to the coordinator when they change. The coordinator sends them to all
    processes of the front end, at most every 100 ms and not within 50 ms of a message. Between two
    of these each process counts a request that it sends as one more that waits; one of n processes
    counts it as n more, because it does not see what the others send.

    With `ranks_by_requests` of the version's rules, the score is the number of requests at a rank:
    those that the coordinator tells, or those of this process times n, if they are more. Waiting
    ones count more where more than half of the pool is in use. Each request begins the search at
    the next rank, so that equal ranks take turns.
    """

    idle_tokens = 1

    def __init__(
        self,
        engines: Sequence[EngineCore],
        num_front_ends: int,
        config: VllmConfig,
    ) -> None:
        """`num_front_ends` is the number of processes of the front end."""
        super().__init__(engines)
        self._version = config.rules
        self._overlaps = config.overlaps
        self.idles_between = config.overlaps and config.micro_batches == 1
        # Of each process of the front end, for each rank.
        self._known = [[[0, 0] for _ in engines] for _ in range(num_front_ends)]
        self._usage = [0.0] * len(engines)
        self._num_sent = [[0] * len(engines) for _ in range(num_front_ends)]
        self._front_end_of: dict[str, int] = {}
        # Processes begin to count at different ranks, so that the first requests spread.
        self._first = [len(engines) * each // num_front_ends for each in range(num_front_ends)]
        self._counts: list[Counts] = [(0, 0, 0.0)] * len(engines)
        # The counts of the step before the last that changed any, while these are to be sent.
        self._counts_before: list[Counts] | None = None
        self._has_changed = False
        self._sent_ns = self._message_ns = 0
        # Rounds of the ranks' loops since they began to run, and whether the last had no work.
        self._num_rounds = 0
        self._has_run_idle = False
        self._are_running = False

    # ---- the front end -------------------------------------------------------------------------

    def choose(self, num_prompt_tokens: int, now_ns: int, front_end: int = 0, rid: str = "") -> int:
        self._send_until(now_ns)
        known, num_ranks = self._known[front_end], len(self.engines)
        first = self._first[front_end]
        chosen = min(
            [(first + i) % num_ranks for i in range(num_ranks)],
            key=lambda rank: self._score(rank, front_end),
        )
        known[chosen][0] += len(self._known)
        if self._version.ranks_by_requests:
            self._first[front_end] = (first + 1) % num_ranks
        if not self._are_running:
            # The front end tells the coordinator, which starts the other ranks.
            self._are_running = True
            self._message_ns = now_ns
        return chosen

    def _score(self, rank: int, front_end: int) -> float:
        num_waiting, num_running = self._known[front_end][rank]
        if not self._version.ranks_by_requests:
            return num_waiting * _WAITING_WEIGHT + num_running
        num_own = len(self._known) * self._num_sent[front_end][rank]
        excess = max(0.0, self._usage[rank] - _HALF)
        penalty = num_waiting * _FULL_POOL_WEIGHT * excess
        return max(num_own, num_waiting + num_running) + penalty

    def sent(self, rank: int, rid: str, front_end: int) -> None:
        self._num_sent[front_end][rank] += 1
        self._front_end_of[rid] = front_end

    def ended(self, rank: int, rids: Sequence[str]) -> None:
        for rid in rids:
            self._num_sent[self._front_end_of.pop(rid)][rank] -= 1

    # ---- the coordinator -----------------------------------------------------------------------

    def _send_until(self, now_ns: int) -> None:
        """Send counts to the front end whenever it was due, up to now."""
        while True:
            interval_ns = _CHANGED_INTERVAL_NS if self._has_changed else _UNCHANGED_INTERVAL_NS
            quiet_ns = _QUIET_NS if self._counts_before is None else 0
            due_ns = max(self._message_ns + quiet_ns, self._sent_ns + interval_ns)
            if due_ns > now_ns:
                return
            if self._counts_before is None:
                self._has_changed = False
            counts = self._counts_before or self._counts
            self._counts_before = None
            self._known = [[[each[0], each[1]] for each in counts] for _ in self._known]
            self._usage = [each[2] for each in counts]
            self._sent_ns = self._message_ns = due_ns

    def _report(self, now_ns: int, counts: list[Counts]) -> None:
        """Ranks send their counts if their requests have changed."""
        counts = [
            before if before[:2] == now[:2] else now
            for before, now in zip(self._counts, counts, strict=True)
        ]
        if counts == self._counts:
            return
        self._send_until(now_ns)
        if self._has_changed:
            self._counts_before = self._counts
        self._counts = counts
        self._has_changed = True
        self._message_ns = now_ns

    # ---- the ranks -----------------------------------------------------------------------------

    def decided(self, now_ns: int) -> None:
        self._report(now_ns, self._counts_now())

    def passed(self, known_ns: Int64) -> None:
        """The counts can differ with the first result, and stay as they are after it."""
        if len(known_ns):
            self._report(int(known_ns[0]), self._counts_now(num_begun=int(self._overlaps)))

    def processing(self, modes: RankModes) -> None:
        self._has_run_idle = all(mode is None for mode in modes)

    def processed(self, now_ns: int, num_steps: int) -> None:
        self._report(now_ns, self._counts_now())
        self._num_rounds += num_steps
        if self._are_running:
            self._ask(now_ns)

    def _counts_now(self, num_begun: int = 0) -> list[Counts]:
        """`num_begun`: of the steps being passed in one go."""
        return [_counts(engine, num_begun) for engine in self.engines]

    def _ask(self, now_ns: int) -> None:
        """Stop the ranks if they ask each other now whether any has work, and none has.

        Under async scheduling a round takes in the result of the step before its own, so the round
        of a last result has one more step, without work:

            round of step 7    decide 7, take in 6
            round of step 8    nothing to decide, take in 7, run without work
        """
        num_rounds, num_in_flight = self._num_rounds, 0
        if self._overlaps and not self._has_run_idle:
            if not any(engine.in_flight for engine in self.engines):
                return
            num_in_flight = 1
            num_rounds += num_in_flight
        is_first = num_rounds == 1 and self._version.syncs_after_first_step
        if num_rounds % self._version.steps_between_syncs and not is_first:
            return
        # Requests whose KV a prefill server only keeps are no work (`has_unfinished_requests`).
        if all(e.num_unanswered == len(e.input_queue.requests) for e in self.engines):
            # A request that has arrived since the ranks' last decision starts them again.
            self._are_running = any(engine.num_unanswered for engine in self.engines)
            # The result of a step in flight belongs to no later round.
            self._num_rounds = -num_in_flight
            self._send_until(now_ns)
            self._message_ns = now_ns

    def idle(self, now_ns: int) -> bool:
        return self._are_running


def _counts(engine: EngineCore, num_begun: int) -> Counts:
    """Requests that have not been received yet count as neither."""
    num_waiting = engine.scheduler.num_waiting
    num_running = len(engine.requests) - len(engine.input_queue.requests) - num_waiting
    num_free = engine.kv.num_free_pages - engine.pages_of_steps(num_begun)
    return num_waiting, num_running, 1 - num_free / engine.kv.num_pages
