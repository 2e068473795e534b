"""The order in which leaves are evicted: SGLang 0.5.23's policies, and one of this project's own.

The default, lru, is beside the nodes (`radix_node.py`). SGLang's are in mem_cache/evict_policy.py
and mem_cache/unified_cache/unified_tree_core.py. Each keeps its number for a node in
`RadixNode.use_score`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import ldexp
from operator import attrgetter
from typing import Protocol

from sim.sglang.cache.tree.radix_node import NO_USES, LeafQueue, LruLeafQueue, RadixNode, UseScore

# A benefit halves while the cache inserts this many times the tokens of the pool.
HALF_LIFE_POOLS = 1


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
