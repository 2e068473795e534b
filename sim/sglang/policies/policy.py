"""The schedule policies: one class for each order in which waiting requests are considered.

Rules 8 and 9 of docs/explanation/sglang.md (SGLang 0.5.23). To add a policy, write a class here,
add it to POLICIES, and add a subclass of the contract suite in `sim.testing`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.orders import Shuffle, dfs_weight_order
from sim.sglang.request import SglangRequest


class QueueView(NamedTuple):
    """What a policy may use besides the requests.

    Attributes:
        root: root of the prefix cache's tree.
        deferred: ids (`id()`) of requests whose prefix an earlier waiting request will compute.
        processed_tokens: prefill tokens that the server has processed so far.
        running: the requests that decode.
        kept: the sessions of which KV is kept now (`Keeper`).
    """

    now_ns: int
    root: RadixNode
    deferred: frozenset[int]
    processed_tokens: int
    running: Sequence[SglangRequest] = ()
    kept: Collection[str] = ()


class ChunkRoom(NamedTuple):
    """Prefill tokens left for this step's chunk, and the page size in tokens."""

    chunk_tokens: int
    page_size: int


class SchedulePolicy(Protocol):
    """Orders the waiting queue, and may limit how a long prompt is cut into chunks.

    Attributes:
        matches_prefixes: before `order` is called, each request's `matched_len` and `kv.found` are
            set by a match against the prefix cache.
        longest_matched_queue: a queue with more waiting requests than this is neither matched nor
            ordered; None: no limit.
        defers_shared_prefixes: `QueueView.deferred` names the requests that share a prefix with an
            earlier waiting request and whose prefix is not cached yet.
        keeps_order: `order` never changes the queue, so it need not be called; nor does the policy
            limit chunks.
        cuts_while_chunked: while one prompt is prefilled chunk by chunk, a second prompt may be
            admitted in part, with the tokens that the first one leaves in the step.
        keeper: says which requests' KV is kept when they have ended; None: nobody does.
    """

    matches_prefixes: bool
    longest_matched_queue: int | None
    defers_shared_prefixes: bool
    keeps_order: bool
    cuts_while_chunked: bool
    keeper: "Keeper | None"

    def order(self, waiting: Sequence[SglangRequest], view: QueueView) -> list[SglangRequest]:
        """Return the same requests in a new order, without changing any of them.

        Equal requests keep their order, except with hrrn (by rid, as in SGLang) and random.
        """

    def chunk_limit(
        self, chunked: SglangRequest, waiting: Sequence[SglangRequest], room: ChunkRoom
    ) -> int | None:
        """The longest next chunk of the chunked request, in tokens. None: no such limit."""


class Keeper(Protocol):
    """Says how long KV is kept after its request has ended (`sim.sglang.scheduler.kept`)."""

    def keep_ns(self, request: SglangRequest, now_ns: int) -> int:
        """For how long a request's KV must not be evicted, now that it has finished; 0: it may."""


class BasePolicy:
    """Defaults for all policies. A user's policy may derive from this class."""

    matches_prefixes = False
    longest_matched_queue: int | None = None
    defers_shared_prefixes = False
    keeps_order = False
    cuts_while_chunked = True
    keeper: Keeper | None = None

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config

    def chunk_limit(
        self, chunked: SglangRequest, waiting: Sequence[SglangRequest], room: ChunkRoom
    ) -> int | None:
        return None


class CacheBlind(BasePolicy):
    """Base of policies that do not look at the prefix cache."""


class CacheAware(BasePolicy):
    """Base of policies that look at the prefix cache."""

    matches_prefixes = True
    defers_shared_prefixes = True


class Fcfs(CacheBlind):
    """First come, first served."""

    keeps_order = True

    def order(self, waiting: Sequence[SglangRequest], view: QueueView) -> list[SglangRequest]:
        return list(waiting)


class LongestOutputFirst(CacheBlind):
    """Largest `max_new_tokens` first."""

    def order(self, waiting: Sequence[SglangRequest], view: QueueView) -> list[SglangRequest]:
        return sorted(waiting, key=lambda r: -r.max_new_tokens)


class ShortestJobFirst(CacheBlind):
    """Shortest predicted output first; without a prediction, `max_new_tokens` counts."""

    def order(self, waiting: Sequence[SglangRequest], view: QueueView) -> list[SglangRequest]:
        return sorted(waiting, key=lambda r: r.spec.predicted_output_tokens or r.max_new_tokens)


class RandomOrder(CacheBlind):
    """Shuffled in each pass, as by Python's `random.shuffle` with the configured seed."""

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        self._shuffle = Shuffle(config.random_seed)

    def order(self, waiting: Sequence[SglangRequest], view: QueueView) -> list[SglangRequest]:
        return self._shuffle(waiting)


class RoutingKey(CacheBlind):
    """Requests whose routing key most running requests have go first; those that share none last.

    A request's key is its `session`. Of equally frequent keys the first in the alphabet comes
    first, also among requests that share none. If no running request has a key, the queue stays as
    it is.
    """

    def order(self, waiting: Sequence[SglangRequest], view: QueueView) -> list[SglangRequest]:
        counts = Counter(r.spec.session for r in view.running if r.spec.session)
        if not counts:
            return list(waiting)

        def key(request: SglangRequest) -> tuple[bool, int, str]:
            count = counts[request.spec.session]
            return not count, -count, request.spec.session

        return sorted(waiting, key=key)


class Priority(CacheBlind):
    """By priority, then in order of entering the queue (rule 9)."""

    def order(self, waiting: Sequence[SglangRequest], view: QueueView) -> list[SglangRequest]:
        sign = self.config.priority_sign
        return sorted(waiting, key=lambda r: (sign * r.priority, r.entry))


class PriorityLongestOutputFirst(CacheBlind):
    """By priority, then largest `max_new_tokens` first (rule 9)."""

    def order(self, waiting: Sequence[SglangRequest], view: QueueView) -> list[SglangRequest]:
        sign = self.config.priority_sign
        return sorted(waiting, key=lambda r: (sign * r.priority, -r.max_new_tokens))


class LongestPrefixMatch(CacheAware):
    """Longest cached prefix first; deferred requests last."""

    longest_matched_queue: int | None = 128

    def order(self, waiting: Sequence[SglangRequest], view: QueueView) -> list[SglangRequest]:
        deferred = view.deferred
        return sorted(waiting, key=lambda r: 1 if id(r) in deferred else -r.matched_len)


class DfsWeight(CacheAware):
    """Depth first through the cache's tree, heaviest subtree first."""

    defers_shared_prefixes = False

    def order(self, waiting: Sequence[SglangRequest], view: QueueView) -> list[SglangRequest]:
        return dfs_weight_order(waiting, view.root)


class Hrrn(CacheAware):
    """Highest response ratio next.

    The ratio is: prefill tokens that the server processed since the request entered the queue,
    divided by the request's uncached prompt tokens.
    """

    longest_matched_queue: int | None = 128

    def order(self, waiting: Sequence[SglangRequest], view: QueueView) -> list[SglangRequest]:
        def key(request: SglangRequest) -> tuple[float, str]:
            if id(request) in view.deferred:
                return float("inf"), request.rid
            uncached = request.prompt_len - request.matched_len
            if uncached <= 0:
                return -float("inf"), request.rid
            return -(view.processed_tokens - request.entry_tokens) / uncached, request.rid

        return sorted(waiting, key=key)


class ShortestPrefillFirst(CacheAware):
    """Fewest uncached tokens first; deferred requests last.

    While a prompt is prefilled chunk by chunk, its chunks leave room for waiting requests with less
    work, and no second prompt is cut (SGLang 0.5.23, schedule_policy.py and scheduler.py).
    """

    cuts_while_chunked = False

    def order(self, waiting: Sequence[SglangRequest], view: QueueView) -> list[SglangRequest]:
        def key(request: SglangRequest) -> tuple[bool, int, int]:
            return id(request) in view.deferred, prefill_work(request), request.entry

        return sorted(waiting, key=key)

    def chunk_limit(
        self, chunked: SglangRequest, waiting: Sequence[SglangRequest], room: ChunkRoom
    ) -> int | None:
        chunk_tokens, page_size = room
        if chunk_tokens < 2 * page_size:
            return None
        remaining = chunked.num_tokens - chunked.prefix_len
        num_reserved = 0
        for request in waiting:
            work = prefill_work(request)
            charge = -(-work // page_size) * page_size
            if work >= remaining or num_reserved + charge > chunk_tokens - page_size:
                break
            num_reserved += charge
        return (chunk_tokens - num_reserved) // page_size * page_size if num_reserved else None


def prefill_work(request: SglangRequest) -> int:
    """Uncached tokens of a waiting request, at least 1."""
    return max(1, request.num_tokens - request.matched_len)


POLICIES: Mapping[str, Callable[[SchedulerConfig], SchedulePolicy]] = {
    "fcfs": Fcfs,
    "lpm": LongestPrefixMatch,
    "dfs-weight": DfsWeight,
    "lof": LongestOutputFirst,
    "sjf": ShortestJobFirst,
    "random": RandomOrder,
    "routing-key": RoutingKey,
    "priority": Priority,
    "hrrn": Hrrn,
    "shortest-prefill-first": ShortestPrefillFirst,
}
PRIORITY_POLICIES: Mapping[str, Callable[[SchedulerConfig], SchedulePolicy]] = {
    "fcfs": Priority,
    "lof": PriorityLongestOutputFirst,
    "priority": Priority,
}


def build_policy(config: SchedulerConfig) -> SchedulePolicy:
    """The policy of a scheduler.

    Without a prefix cache, policies that use the cache are replaced by fcfs (rule 8). A user's own
    policy is never replaced.
    """
    own: SchedulePolicy | None = config.own_rule("schedule_policy")
    if own is not None:
        return own
    table = PRIORITY_POLICIES if config.enable_priority_scheduling else POLICIES
    policy = table[config.schedule_policy](config)
    if config.disable_radix_cache and policy.matches_prefixes:
        return Fcfs(config)
    return policy
