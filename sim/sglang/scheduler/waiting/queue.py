"""The queues of a server: the waiting queue and its limits, and what a role adds to it.

A server that computes whole requests has the waiting queue alone (`Queues`). A prefill server has
two more (`sim.sglang.scheduler.roles.prefill_server`), and a decode server has four of its own
(`sim.sglang.scheduler.roles.decode_server`).

Limits on waiting requests, and on the time that requests wait or run, are rule 21. Source: SGLang
0.5.23, `_abort_on_queued_limit` and `_poll_timeout_aborts` in managers/scheduler.py.
"""

from collections.abc import Iterable, Sequence

from sim.core.request import Status
from sim.engine.scheduler import NEVER_AGES_NS
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import ChunkRoom, QueueView, SchedulePolicy
from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.kept import KeptPrefixes
from sim.sglang.scheduler.server import SglangServer
from sim.sglang.scheduler.waiting.fairness import (
    AgingQueue,
    BoundedWait,
    bring_forward,
    build_fairness,
)
from sim.sglang.scheduler.waiting.kept_orders import build_kept_order

# SGLang: WAITING_PREFIX_REFRESH_INTERVAL and WAITING_QUEUE_PREFIX_MATCH_MAX.
_PASSES_PER_REFRESH = 32
_MOST_REFRESHED = 128
# Of SGLang's eviction policies only lru refreshes them (`SchedulePolicy._touch_waiting_prefixes`).
_NEVER_REFRESHED = ("lfu", "slru", "tlru", "priority")


class WaitingQueue:
    """The waiting requests. Each pass starts from the order that the pass before has left.

    Attributes:
        requests: in order; the first one is considered first.
        processed_tokens: prefill tokens processed so far, counted by the scheduler. Policy hrrn
            uses them as its clock.
        next_aging_ns: the next time at which a waiting request ages under the fairness rule. A pass
            at or after this time must order the queue anew.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVCacheManager,
        policy: SchedulePolicy,
        prefixes: KeptPrefixes | None = None,
    ) -> None:
        """`prefixes`: those that the policy keeps; None: none."""
        self._config = config
        self._kv = kv
        self._policy = policy
        self._prefixes = prefixes
        self._keeps_order = policy.keeps_order
        self._fairness = build_fairness(config.fairness, config.own_rule("fairness"))
        self._bounded = self._fairness if isinstance(self._fairness, BoundedWait) else None
        self._aging = AgingQueue()
        # Under FAIRNESS_T: the first requests of the queue that the last pass has seen aged; and
        # how many have entered since.
        self._num_aged = self._num_entered = 0
        self.next_aging_ns = NEVER_AGES_NS
        self._kept = build_kept_order(config, kv, policy)
        self.requests: list[SglangRequest] = [] if self._kept is None else self._kept.requests
        self.processed_tokens = 0
        self._num_entries = 0
        self.num_refreshes = 0
        self._refreshes = (
            kv.cache.enabled
            and config.rules.marks_waiting_prefixes
            and config.radix_eviction_policy not in _NEVER_REFRESHED
        )

    def __len__(self) -> int:
        return len(self.requests)

    def enter(self, request: SglangRequest) -> None:
        self._num_entries += 1
        self._num_entered += 1
        request.entry = self._num_entries
        request.entry_tokens = self.processed_tokens
        if self._kept is None:
            self.requests.append(request)
        else:
            self._kept.enter(request)
        if self._fairness is not None:
            ages_ns = self._fairness.ages_ns(request)
            if self._bounded is not None:
                self._aging.enter(request, ages_ns)
            self.next_aging_ns = min(self.next_aging_ns, ages_ns)

    def leave(self, requests: list[SglangRequest]) -> None:
        """Remove requests that were admitted."""
        if self._fairness is not None:
            self._fairness.note_admitted(len(requests))
        if self._kept is not None:
            self._kept.leave(requests)
        elif self.requests[: len(requests)] == requests:
            del self.requests[: len(requests)]
            self._num_aged = max(self._num_aged - len(requests), 0)
        else:
            gone = set(map(id, requests))
            self._num_aged -= sum(id(r) in gone for r in self.requests[: self._num_aged])
            self.requests = [request for request in self.requests if id(request) not in gone]

    def remove(self, request: SglangRequest) -> None:
        """Remove a request that is not served."""
        index = next(i for i, each in enumerate(self.requests) if each is request)
        if index >= len(self.requests) - self._num_entered:
            self._num_entered -= 1
        if self._kept is not None:
            self._kept.remove(request, index)
            return
        del self.requests[index]
        self._num_aged -= index < self._num_aged

    def order(self, now_ns: int, running: Sequence[SglangRequest] = ()) -> None:
        """Order the queue by the policy, then by the fairness rule."""
        if self._kept is not None:
            self._kept.order(self._take_aged(now_ns))
        else:
            deferred = self._order_by_policy(now_ns, running)
            self._apply_fairness(now_ns, deferred)
        self._num_entered = 0
        self.update_next_aging(now_ns)

    def _apply_fairness(self, now_ns: int, deferred: frozenset[int]) -> None:
        bounded = self._bounded
        if bounded is None:
            if self._fairness is not None:
                self.requests = self._fairness.reorder(self.requests, now_ns, deferred)
            return
        newly_aged = self._take_aged(now_ns)
        if not (self._keeps_order or self._is_too_long):
            self.requests = bounded.reorder(self.requests, now_ns, deferred)
            self._num_aged = bounded.num_aged
        elif newly_aged:
            self._num_aged = bring_forward(
                self.requests, self._num_aged, newly_aged, self._num_entered
            )

    def _take_aged(self, now_ns: int) -> list[SglangRequest]:
        """The requests that have aged under FAIRNESS_T since the last pass."""
        if self._bounded is None:
            return []
        aged = self._aging.take_aged(now_ns)
        for request in aged:
            self._bounded.note_aged(request)
        return aged

    def update_next_aging(self, now_ns: int) -> None:
        """Set `next_aging_ns` to the first aging after `now_ns`."""
        if self.next_aging_ns > now_ns:
            return
        if self._bounded is not None:
            self.next_aging_ns = self._aging.next_ns(now_ns)
        elif self._fairness is not None:
            ages_ns = map(self._fairness.ages_ns, self.requests)
            self.next_aging_ns = min((t for t in ages_ns if t > now_ns), default=NEVER_AGES_NS)

    def _order_by_policy(self, now_ns: int, running: Sequence[SglangRequest]) -> frozenset[int]:
        """Order the queue by the policy alone; returns ids of the deferred requests.

        Equal requests keep their order. A queue that is too long for the policy is not ordered.
        """
        policy = self._policy
        deferred: frozenset[int] = frozenset()
        if self._is_too_long:
            self._refresh_prefixes()
            return deferred
        if policy.matches_prefixes:
            deferred = self._match_prefixes(defer=policy.defers_shared_prefixes)
        if not self._keeps_order:
            kept = frozenset[str]() if self._prefixes is None else self._prefixes.sessions
            tokens = self.processed_tokens
            view = QueueView(now_ns, self._kv.cache.root, deferred, tokens, running, kept)
            self.requests = policy.order(self.requests, view)
        if not policy.matches_prefixes:
            self._refresh_prefixes()
        return deferred

    @property
    def _is_too_long(self) -> bool:
        """The queue is too long for the policy, and keeps its order."""
        longest = self._policy.longest_matched_queue
        return longest is not None and len(self.requests) > longest

    def chunk_limit(self, chunked: SglangRequest, chunk_tokens: int) -> int | None:
        """The longest next chunk of the chunked request, in tokens; None: no limit."""
        if self._keeps_order:
            return None
        room = ChunkRoom(chunk_tokens, self._kv.page_size)
        return self._policy.chunk_limit(chunked, self.requests, room)

    def _match_prefixes(self, *, defer: bool) -> frozenset[int]:
        """Match every waiting request; returns ids of those to defer (rule 8, in-batch prefixes).

        A request is deferred if it has few cached tokens and starts with the same tokens as an
        earlier waiting request that also has few: the earlier one will put them into the cache.
        """
        check = self._config.in_batch_prefix_check_threshold
        shared_len = self._config.in_batch_prefix_deprioritize_threshold
        seen: set[bytes] = set()
        deferred: set[int] = set()
        for request in self.requests:
            self._kv.match_waiting(request)
            num_tokens = request.num_tokens
            if defer and request.prefix_len <= check and num_tokens >= shared_len:
                start = request.kv.token_ids(num_tokens)[:shared_len].tobytes()
                if start in seen:
                    deferred.add(id(request))
                else:
                    seen.add(start)
        return frozenset(deferred)

    def _refresh_prefixes(self) -> None:
        """Every 32nd pass under lru, mark the prefixes of the first 128 requests as used (rule 12).

        Policies that match nothing would otherwise let these prefixes become the least recently
        used ones, and they would be evicted just before they are needed. The head of the queue goes
        last, so that its prefix is the most recently used one.
        """
        if not (self._refreshes and self.requests):
            return
        refresh = self.num_refreshes % _PASSES_PER_REFRESH == 0
        self.num_refreshes += 1
        if refresh:
            for request in reversed(self.requests[:_MOST_REFRESHED]):
                self._kv.find_prefix(request.kv, request.num_tokens, request.num_tokens)

    def refresh_while_idle(self) -> None:
        """A server that can launch nothing makes pass after pass, until one marks the prefixes."""
        if self.num_refreshes % _PASSES_PER_REFRESH != 1:
            self.num_refreshes = 0
            self._refresh_prefixes()


class Limits:
    """Says which requests are dropped because too many wait, and which are late."""

    def __init__(self, config: SchedulerConfig, waiting: WaitingQueue) -> None:
        self._waiting = waiting
        self._most_waiting = config.max_queued_requests
        self._waiting_ns = config.waiting_timeout_ns
        self._running_ns = config.running_timeout_ns
        self._has_priorities = config.enable_priority_scheduling
        self._sign = config.priority_sign

    def one_too_many(self, entering: SglangRequest) -> SglangRequest | None:
        """The request to drop when one enters the queue; None: there is a place for it.

        With priorities it is the least important one that waits, if the entering one is better.
        """
        waiting, sign = self._waiting.requests, self._sign
        if self._most_waiting is None or len(waiting) < self._most_waiting:
            return None
        if self._has_priorities and waiting:
            least = max(waiting, key=lambda r: (sign * r.priority, r.entry))
            if sign * entering.priority < sign * least.priority:
                return least
        return entering

    def late(self, now_ns: int, running: Iterable[SglangRequest]) -> list[SglangRequest]:
        """The waiting and the running requests that are late now, in order."""
        late: list[SglangRequest] = []
        if (limit_ns := self._waiting_ns) is not None:
            late += [r for r in self._waiting.requests if now_ns - r.entered_ns > limit_ns]
        if (limit_ns := self._running_ns) is not None:
            late += [r for r in running if now_ns - r.scheduled_ns > limit_ns]
        return late

    def next_late_ns(self, running: Iterable[SglangRequest]) -> int:
        """The first time at which a request is late."""
        times_ns = [NEVER_AGES_NS]
        if (limit_ns := self._waiting_ns) is not None:
            times_ns += [r.entered_ns + limit_ns + 1 for r in self._waiting.requests]
        if (limit_ns := self._running_ns) is not None:
            times_ns += [r.scheduled_ns + limit_ns + 1 for r in running]
        return min(times_ns)


def build_limits(config: SchedulerConfig, waiting: WaitingQueue) -> Limits | None:
    limits = (config.max_queued_requests, config.waiting_timeout_ns, config.running_timeout_ns)
    return None if all(limit is None for limit in limits) else Limits(config, waiting)


class Queues:
    """The queues of a server that computes whole requests.

    Attributes:
        prefills, decodes: whether it computes prompts, and what follows them.
        drops_chunks: a chunked request whose client gives up is gone with the next decision. The
            loop of prefill servers with stages does not look for it
            (`event_loop_pp_disagg_prefill` in managers/scheduler_pp_mixin.py).
    """

    def __init__(self, server: SglangServer, waiting: WaitingQueue, limits: Limits | None) -> None:
        self.server = server
        self.waiting = waiting
        self._limits = limits
        self.prefills = self.decodes = self.drops_chunks = True

    # ---- requests ------------------------------------------------------------------------------

    def token_limit(self, num_tokens: int) -> int:
        """How many tokens a request may generate here, of the `num_tokens` that it may in all."""
        return num_tokens

    def ever_fits(self, prompt_len: int, num_new_tokens: int) -> bool:
        """Whether the queues of this role can ever let a request of this size through."""
        return True

    def enter(self, request: SglangRequest) -> None:
        """Put a request into the first queue; if too many wait, one of them is dropped."""
        if self._limits is not None:
            dropped = self._limits.one_too_many(request)
            if dropped is not None:
                self.server.dropped.append(dropped)
                if dropped is request:
                    return
                self._remove(dropped)
        self.server.look_up(request)
        request.entered_ns = self.server.now_ns
        self.waiting.enter(request)

    def abort(self, request: SglangRequest) -> bool:
        """A waiting request is gone at once (True), any other ends with its next result."""
        if request.status is Status.WAITING:
            self._remove(request)
            return True
        return False

    def _remove(self, request: SglangRequest) -> None:
        self.waiting.remove(request)
        self._left(request)

    def _left(self, request: SglangRequest) -> None:
        """A request that was in a queue is not served."""
        if self.server.storage is not None:
            self.server.storage.left(request)

    def slot_freed(self, request: SglangRequest) -> None:
        """A request has given back its slot."""

    @property
    def num_waiting(self) -> int:
        return len(self.waiting.requests)

    @property
    def waiting_requests(self) -> Sequence[SglangRequest]:
        """The waiting requests, without KV here."""
        return self.waiting.requests

    @property
    def elsewhere(self) -> Sequence[SglangRequest]:
        """Requests that hold KV for another server, or whose KV comes from there."""
        return ()

    # ---- decode steps --------------------------------------------------------------------------

    def num_known_outputs(self, request: SglangRequest) -> int:
        """The output tokens of a running row that are known."""
        return request.num_generated

    def keeps_kv(self, request: SglangRequest) -> bool:
        """Whether a running request that is to be retracted can come back later."""
        return True

    def begin_decision(self, num_missed_steps: int) -> None:
        """A decision begins. Rows that have just joined are not in `num_missed_steps` in flight."""

    def chunk_cached(self) -> None:
        """The prefix cache has got a chunk, or the rest of one, before the pass."""

    def end_decision(self) -> None:
        """The decision is made."""

    @property
    def repeats(self) -> bool:
        """Whether the queues of this role stay as they are while the same rows decode."""
        return True

    def decoded_again(self, num_steps: int) -> None:
        """The same rows have decoded `num_steps` times."""

    # ---- idle ----------------------------------------------------------------------------------

    def begin_idle(self) -> None:
        """A decision launched nothing, and nothing is in flight."""

    @property
    def waits_for_partner(self) -> bool:
        """Whether an idle server's next decision has to wait for another server."""
        return False
