"""The order in which leaves are evicted: SGLang 0.5.23's policies, and one of this project's own.

SGLang's are in mem_cache/evict_policy.py and mem_cache/unified_cache/unified_tree_core.py. Each
keeps its number for a node in `RadixNode.use_score`.
"""

import heapq
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import ldexp
from operator import attrgetter
from typing import Any, Protocol

from sim.core.errors import InvariantError
from sim.sglang.cache.tree.radix_node import NO_USES, RadixNode, UseScore

# A benefit halves while the cache inserts this many times the tokens of the pool.
HALF_LIFE_POOLS = 1
UNSTABLE_RANK = "the rank of a leaf changed although nothing used it"


class LeafQueue:
    """Priority queue of the unlocked leaves, lowest rank first.

    A use never lowers the rank of a node, so entries are corrected late, when they come to the top:
    if the leaf has been used since it was queued, it is queued again with its new rank; if it is
    locked or has children now, it is dropped. So a use costs nothing here, and an eviction costs
    O(log n), amortised over uses and evictions. A policy under which a split lowers the rank sets
    `falls_by_split`: then a node has a further entry for each split.

    Args:
        rank: returns the rank of a leaf.
        count: called by `count`; None: uses are not counted.
        fail: makes the error for a rank that has changed without a use.

    Attributes:
        rank, fail: see above.
        counts_uses: `count_path` must be called for each use.
        falls_by_split: `was_split` must be called for the lower part of a split node.
        keeps_priorities: `note_priority` must be called for each insertion.
        counts_with_write_back: uses are counted under write-back, too (SGLang 0.5.23 counts none:
            `_inc_hit_count_and_check` in unified_tree_core.py).
    """

    counts_with_write_back = True
    falls_by_split = False
    keeps_priorities = False

    def __init__(
        self,
        rank: Callable[[RadixNode], Any],
        count: Callable[[RadixNode], None] | None = None,
        fail: Callable[[str], Exception] = InvariantError,
    ) -> None:
        self.rank = rank
        self.counts_uses = count is not None
        self._count = count
        self.fail = fail
        self._heap: list[tuple[Any, int, RadixNode]] = []
        self._num_pushed = 0

    def count(self, node: RadixNode) -> None:
        """Count one more request that found or computed the node.

        Call it for children before their parents, so that no parent's rank is below its child's.
        """
        if self._count is not None:
            self._count(node)

    def count_path(self, end: RadixNode, since: int, skipped: Collection[RadixNode] = ()) -> None:
        """Count that one more request has used the nodes from position `since` to `end`'s end.

        The `skipped` nodes count no use.
        """
        node = end
        while node.parent is not None and node.end > since:
            if node not in skipped:
                self.count(node)
            node = node.parent

    def note_priority(self, end: RadixNode, priority: int) -> None:
        """A request of this priority inserted the nodes from the root to `end`."""

    def was_split(self, node: RadixNode) -> None:
        """The first tokens of this node were moved to a new parent."""

    def note_fetched(self, node: RadixNode, parent: RadixNode) -> None:
        """A new node has come to host memory from a store."""

    def offer(self, node: RadixNode) -> None:
        """Queue a node if it may be evicted now; the root never may."""
        if not (node.num_locks or node.children or node.queued):
            node.queued = True
            self._push(node)

    def pop(self) -> RadixNode | None:
        """Remove the unlocked leaf with the lowest rank; None: there is no unlocked leaf."""
        heap = self._heap
        num_stale = len(heap)
        while heap:
            rank, _, node = heapq.heappop(heap)
            if not node.queued:
                continue
            if node.num_locks or node.children or not node.on_device:
                node.queued = False
            elif self.rank(node) != rank:
                num_stale -= 1
                if num_stale < 0:
                    raise self.fail(UNSTABLE_RANK)
                self._push(node)
            else:
                node.queued = False
                return node
        return None

    def _push(self, node: RadixNode) -> None:
        self._num_pushed += 1
        heapq.heappush(self._heap, (self.rank(node), self._num_pushed, node))


class LruLeafQueue(LeafQueue):
    """Least recently used first. No two nodes have the same tick, so a heap of ticks is enough."""

    def __init__(self) -> None:
        super().__init__(attrgetter("last_used_tick"))
        self._ticks: list[int] = []
        self._node_at: dict[int, RadixNode] = {}

    def pop(self) -> RadixNode | None:
        ticks = self._ticks
        while ticks:
            node = self._node_at.pop(ticks[0])
            tick = node.last_used_tick
            if node.num_locks or node.children or not node.on_device:
                heapq.heappop(ticks)
                node.queued = False
            elif tick != ticks[0]:
                heapq.heapreplace(ticks, tick)
                self._node_at[tick] = node
            else:
                heapq.heappop(ticks)
                node.queued = False
                return node
        return None

    def _push(self, node: RadixNode) -> None:
        tick = node.last_used_tick
        heapq.heappush(self._ticks, tick)
        self._node_at[tick] = node


class LfuLeafQueue(LeafQueue):
    """Fewest uses first, ties by least recent use: SGLang 0.5.23's `lfu`.

    A request uses a node when it inserts the node, or passes through the node to insert its own
    tokens. It counts once, but a retracted request counts again. Both parts of a split node keep
    the count.
    """

    counts_with_write_back = False

    def __init__(self) -> None:
        super().__init__(attrgetter("use_score", "last_used_tick"), count_one)


def count_one(node: RadixNode) -> None:
    node.use_score = node.use_score[0] + 1, 0.0


class HitBenefitLeafQueue(LeafQueue):
    """Least benefit per token first, ties by least recent use (docs/explanation/adr/0007).

    A hit on a node saves computing the node's tokens: that is its benefit. Inserting a node counts
    as a hit. A hit counts on every node of its path, so a parent's benefit per token is never less
    than its child's. Benefits halve with each half-life. Time is the number of tokens inserted, so
    benefits do not age while nothing new is inserted. A node's benefit per token is

        sum over its hits of 2 ** (-age / half_life), interpolated linearly within a half-life.

    All benefits decay at the same rate. So instead of scaling down old hits, new hits get a larger
    weight: the score is the sum of 2 ** (time / half_life), stored as an exponent and a mantissa
    from 1 to below 2. The arithmetic is exact or correctly rounded, and so the same on every
    machine.

    Example with a half-life of 1,000 tokens: a hit at time 500 adds 1.5 * 2**0, one at time 3,000
    adds 1.0 * 2**3. Together they are 9.5 = 1.1875 * 2**3, stored as (3, 1.1875).
    """

    def __init__(self, half_life_tokens: int) -> None:
        super().__init__(attrgetter("use_score", "last_used_tick"), self._count_hit)
        self._half_life = half_life_tokens
        self._time = 0

    def _count_hit(self, node: RadixNode) -> None:
        if node.use_score == NO_USES:
            self._time += len(node.token_ids)
        num_halvings, rest = divmod(self._time, self._half_life)
        node.use_score = _sum(node.use_score, (num_halvings, 1.0 + rest / self._half_life))


def _sum(a: UseScore, b: UseScore) -> UseScore:
    (low_exponent, low), (exponent, mantissa) = sorted((a, b))
    mantissa += ldexp(low, low_exponent - exponent)
    return (exponent + 1, mantissa / 2) if mantissa >= 2.0 else (exponent, mantissa)


# Below every priority.
_NO_PRIORITY = -(1 << 64)
# Beside a priority, it says that the node has one.
_IS_SET = 1.0


@dataclass(frozen=True, slots=True)
class EvictionSettings:
    """Settings of the eviction policy: SGLang's `--radix-eviction-policy-config`.

    Attributes:
        protected_threshold: under slru, uses from which a node is protected.
        threshold, next_prompt_estimate: under tlru, tokens of a prefill that is fast enough, and
            tokens that the next prompt of a conversation is expected to add.
    """

    protected_threshold: int = 2
    threshold: int = 0
    next_prompt_estimate: int = 0


DEFAULT_SETTINGS = EvictionSettings()


class SlruLeafQueue(LeafQueue):
    """Leaves with few uses first, then the protected ones; each least recently used first."""

    counts_with_write_back = False

    def __init__(self, protected_threshold: int) -> None:
        def rank(node: RadixNode) -> tuple[bool, int]:
            return node.use_score[0] >= protected_threshold, node.last_used_tick

        super().__init__(rank, count_one)


class PriorityLeafQueue(LeafQueue):
    """Lowest priority first, ties by least recent use.

    A node has the highest priority of the requests that inserted it or passed through it.
    """

    keeps_priorities = True

    def __init__(self) -> None:
        super().__init__(_priority_rank)

    def note_priority(self, end: RadixNode, priority: int) -> None:
        node: RadixNode | None = end
        while node is not None:  # the root, too: nodes that are fetched below it get its priority
            known, is_set = node.use_score
            if not is_set or priority > known:
                node.use_score = priority, _IS_SET
            node = node.parent

    def note_fetched(self, node: RadixNode, parent: RadixNode) -> None:
        node.use_score = parent.use_score


def _priority_rank(node: RadixNode) -> tuple[int, int]:
    priority, is_set = node.use_score
    return priority if is_set else _NO_PRIORITY, node.last_used_tick


def _count_nothing(node: RadixNode) -> None: ...


class TlruLeafQueue(LeafQueue):
    """Tokens that a conversation need not keep for its next prefill to be fast go first.

    A conversation of L tokens whose next prompt adds `next_prompt_estimate` must keep all but
    `threshold` of the sum. L is the deepest end of a path through the node, now or earlier. A node
    behind the tokens to be kept goes before all others; ties by least recent use. The paper is
    arXiv:2510.15152.
    """

    falls_by_split = True

    def __init__(self, threshold: int, next_prompt_estimate: int) -> None:
        def rank(node: RadixNode) -> tuple[bool, int]:
            num_kept = max(node.use_score[0] + next_prompt_estimate - threshold, 0)
            return node.end - node.num_tokens < num_kept, node.last_used_tick

        super().__init__(rank, _count_nothing)

    def count_path(self, end: RadixNode, since: int, skipped: Collection[RadixNode] = ()) -> None:
        node, depth = end, end.end
        while node.parent is not None and node.use_score[0] < depth:
            node.use_score = depth, 0.0
            node = node.parent

    def was_split(self, node: RadixNode) -> None:
        """The lower part may have become one that goes first."""
        if node.queued:
            self._push(node)

    def note_fetched(self, node: RadixNode, parent: RadixNode) -> None:
        self.count_path(node, 0)


class MakeLeaves(Protocol):
    """Makes the queue of a policy for a pool of `pool_tokens` tokens."""

    def __call__(
        self, pool_tokens: int, settings: EvictionSettings = DEFAULT_SETTINGS, /
    ) -> LeafQueue: ...


EVICTION_POLICIES: Mapping[str, MakeLeaves] = {
    "lru": lambda _, _settings=DEFAULT_SETTINGS: LruLeafQueue(),
    "lfu": lambda _, _settings=DEFAULT_SETTINGS: LfuLeafQueue(),
    "slru": lambda _, settings=DEFAULT_SETTINGS: SlruLeafQueue(settings.protected_threshold),
    "tlru": lambda _, settings=DEFAULT_SETTINGS: TlruLeafQueue(
        settings.threshold, settings.next_prompt_estimate
    ),
    "priority": lambda _, _settings=DEFAULT_SETTINGS: PriorityLeafQueue(),
    "hit-benefit": lambda pool_tokens, _settings=DEFAULT_SETTINGS: HitBenefitLeafQueue(
        HALF_LIFE_POOLS * max(pool_tokens, 1)
    ),
}
