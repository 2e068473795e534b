"""SGLang 0.5.23's eviction policies by segments, priority or length of the conversation.

Each keeps its number for a node in `RadixNode.use_score` (mem_cache/evict_policy.py and
mem_cache/unified_cache/unified_tree_core.py).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from sim.sglang.cache.tree.eviction import (
    HALF_LIFE_POOLS,
    HitBenefitLeafQueue,
    LeafQueue,
    LfuLeafQueue,
    LruLeafQueue,
    count_one,
)
from sim.sglang.cache.tree.radix_node import RadixNode

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
        node = end
        while node.parent is not None:
            known, is_set = node.use_score
            if not is_set or priority > known:
                node.use_score = priority, _IS_SET
            node = node.parent


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
