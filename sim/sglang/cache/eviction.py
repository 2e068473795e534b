"""Which leaf is evicted next: the least recently, least often or least beneficially used one."""

import heapq
from collections.abc import Callable, Mapping
from math import ldexp
from operator import attrgetter
from typing import Any

from sim.sglang.cache.radix_node import NO_WORTH, RadixNode, Worth

# Benefits halve while as many tokens are inserted as the pool has room for, this many times over.
HALF_LIFE_POOLS = 1


class Leaves:
    """Unlocked leaves by rank, lowest first.

    A node's rank only grows. Entries are corrected when they surface: a leaf used since it was
    queued goes back with its new rank, a node that is no unlocked leaf any more is dropped. So a
    use costs nothing here, and an eviction O(log n) amortised over uses and evictions.

    Attributes:
        rank: what a leaf is ordered by.
        counts_uses: `count` has to be told of uses.
    """

    counts_uses = False

    def __init__(self, rank: Callable[[RadixNode], Any]) -> None:
        self.rank = rank
        self._heap: list[tuple[Any, int, RadixNode]] = []
        self._num_pushed = 0

    def count(self, node: RadixNode) -> None:
        """One more request uses the node: it found it, or computed it. Ends of paths first."""

    def offer(self, node: RadixNode) -> None:
        """Queue a node if it may be evicted now; the root never may."""
        if not (node.num_locks or node.children or node.queued):
            node.queued = True
            self._push(node)

    def pop(self) -> RadixNode | None:
        """Take the unlocked leaf of the lowest rank out, or None if there is none."""
        heap = self._heap
        while heap:
            rank, _, node = heapq.heappop(heap)
            if node.num_locks or node.children:
                node.queued = False
            elif self.rank(node) != rank:
                self._push(node)
            else:
                node.queued = False
                return node
        return None

    def _push(self, node: RadixNode) -> None:
        self._num_pushed += 1
        heapq.heappush(self._heap, (self.rank(node), self._num_pushed, node))


class LruLeaves(Leaves):
    """Least recently used first."""

    def __init__(self) -> None:
        super().__init__(attrgetter("last_used_tick"))


class LfuLeaves(Leaves):
    """Fewest uses first, ties by least recent use: SGLang 0.5.23's `lfu`.

    A use is a request that inserts the node or passes through it when it inserts its own tokens,
    once a request; after a retraction it counts again. Both parts of a cut keep the number.
    """

    counts_uses = True

    def __init__(self) -> None:
        super().__init__(attrgetter("worth", "last_used_tick"))

    def count(self, node: RadixNode) -> None:
        node.worth = node.worth[0] + 1, 0.0


class HitBenefitLeaves(Leaves):
    """Least benefit for its tokens first, ties by least recent use (docs/explanation/adr/0007).

    A hit saves as many tokens of a node as the node has, and is as much benefit; to insert a node
    counts as a hit. Benefits halve with each half-life. Time is the number of tokens inserted: it
    stands still while nothing presses on the cache. A hit counts on its whole path, so a node's
    benefit covers its subtree's, evicted parts of it included, and per token is

        sum over its hits of 2 ** (-age / half_life), linear in between two half-lives.

    All decay alike, so instead of ageing old hits, new ones weigh more: `worth` is the sum of
    2 ** (time / half_life), as an exponent and a mantissa from 1 to below 2. This arithmetic is
    exact or correctly rounded, hence the same on every machine.
    """

    counts_uses = True

    def __init__(self, half_life_tokens: int) -> None:
        super().__init__(attrgetter("worth", "last_used_tick"))
        self._half_life = half_life_tokens
        self._time = 0

    def count(self, node: RadixNode) -> None:
        if node.worth == NO_WORTH:
            self._time += len(node.token_ids)
        num_halvings, rest = divmod(self._time, self._half_life)
        node.worth = _sum(node.worth, (num_halvings, 1.0 + rest / self._half_life))


def _sum(a: Worth, b: Worth) -> Worth:
    (low_exponent, low), (exponent, mantissa) = sorted((a, b))
    mantissa += ldexp(low, low_exponent - exponent)
    return (exponent + 1, mantissa / 2) if mantissa >= 2.0 else (exponent, mantissa)


# By name; made for a pool of so many tokens.
EVICTION_POLICIES: Mapping[str, Callable[[int], Leaves]] = {
    "lru": lambda _: LruLeaves(),
    "lfu": lambda _: LfuLeaves(),
    "hit-benefit": lambda pool_tokens: HitBenefitLeaves(HALF_LIFE_POOLS * max(pool_tokens, 1)),
}
