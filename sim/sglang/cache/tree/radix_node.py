"""The nodes of the radix tree, where a cached prefix ends in them, and which leaf goes first.

A node is consecutive tokens, in whole pages, that follow its parent's tokens.
"""

import heapq
from collections.abc import Callable, Collection, Iterator
from operator import attrgetter
from typing import Any, Final, Union

import numpy as np

from sim.core.errors import InvariantError
from sim.core.tokens import PageKey, TokenIds, TokenSequence
from sim.engine.page_pool import PageCount, Span

# A parent finds a child by the child's first page: at page size 1 by its token, otherwise by its
# place in a stream or by the bytes of its tokens (`RadixNode.keys_tokens`). Until a child is first
# looked for by its page, its key is the RadixNode itself.
ChildKey = Union[PageKey, "RadixNode"]

# An eviction policy's score of a node's uses; the node with the lowest score is evicted first.
UseScore = tuple[int, float]
NO_USES: UseScore = (0, 0.0)
_NO_TOKENS: TokenIds = np.empty(0, dtype=np.int64)


class HostNodeState:
    """What a cache with host memory keeps about a node.

    Attributes:
        pages: the copy of the node in host memory, or None.
        children: child nodes whose KV is in host memory alone, by the content of their first page.
        num_uses: requests that inserted the node or passed through it. Both parts of a split node
            keep the number.
        num_locks: admissions and loads that end at this node.
        stored_with: the node whose copy to host memory runs now and includes this one; None: no
            such copy runs.
        loaded_with: the last node of the load that brings this node to the device now; None: no
            such load runs.
        queued: the eviction queue of host memory has an entry for this node.
        state, window: copies of what the node holds in the pools of parts; never set where there is
            no such part.
    """

    state: "PoolDatum"
    window: "PoolDatum"

    __slots__ = (
        "children",
        "loaded_with",
        "num_locks",
        "num_uses",
        "pages",
        "queued",
        "state",
        "stored_with",
        "window",
    )

    def __init__(self) -> None:
        self.pages: Span | None = None
        self.children: dict[ChildKey, RadixNode] = {}
        self.num_uses = self.num_locks = 0
        self.stored_with: RadixNode | None = None
        self.loaded_with: RadixNode | None = None
        self.queued = False


class PoolDatum:
    """What a part of the KV memory with a pool of its own keeps about a node.

    The pool has the KV of layers with a sliding window, or the states of state-space layers. It is
    on the device; the node's copies in the part's pool in host memory have a datum of their own.

    Attributes:
        holds: the node has something in the pool: the KV of its tokens, or the state at its end.
            Without it, the other layers can use the node, but these layers cannot. With windows it
            is called a tombstone then.
        num_locks: requests that need what it has there.
        newer, older: its neighbours in the order of uses; None while it is not in it.
    """

    __slots__ = ("holds", "newer", "node", "num_locks", "older")

    def __init__(self, node: "RadixNode") -> None:
        self.node = node
        self.holds = False
        self.num_locks = 0
        self.newer: PoolDatum | None = None
        self.older: PoolDatum | None = None


class RadixNode:
    """One edge of the tree and the node at its end. Mutable; owned by its tree.

    Attributes:
        token_ids: the node's own tokens, whole pages of them.
        num_tokens: length of `token_ids`; 0 after `forget_tokens`.
        key: the key in its parent's `children`: the content of its first page. Until the node
            is first looked for by that content, the key is the node itself; it is then an only
            child.
        pages: the pages that hold the KV of its tokens.
        end: tokens from the root to this node's end. A split never changes it.
        end_key: the key of the path to its end, see `PathKeys`; 0: not made yet.
        parent: None for the root only. Kept after eviction, see `RadixCache.match`.
        rank: order of insertion; used to order siblings. Both parts of a split node keep it.
        num_locks: requests that use this node or one below it, which protects it from eviction.
        last_used_tick: logical time of the last use; all nodes have different ones.
        on_device: whether its KV is on the device; False once evicted, True again once loaded.
        queued: the eviction queue has an entry for this node.
        keys_tokens: its children have keys of the tokens of their first pages, not of their places.
        is_watched: `RadixTree.changes` notes what happens to this node.
        use_score: kept by the eviction policy; both parts of a split node keep it.
        host: kept by a cache with host memory; otherwise never set.
        state: kept by a cache with states; otherwise never set.
        window: kept by a cache with windows; otherwise never set.
    """

    host: HostNodeState
    state: PoolDatum
    window: PoolDatum

    __slots__ = (
        "children",
        "end",
        "end_key",
        "host",
        "is_watched",
        "key",
        "keys_tokens",
        "last_used_tick",
        "num_locks",
        "num_tokens",
        "on_device",
        "pages",
        "parent",
        "queued",
        "rank",
        "state",
        "token_ids",
        "use_score",
        "window",
    )

    def __init__(
        self, token_ids: TokenSequence, pages: Span, end: int, parent: "RadixNode | None", rank: int
    ) -> None:
        self.token_ids = token_ids
        self.num_tokens = len(token_ids)
        self.key: ChildKey = self
        self.pages = pages
        self.end = end
        self.end_key = 0
        self.parent = parent
        self.children: dict[ChildKey, RadixNode] = {}
        self.rank = rank
        self.num_locks = 0
        self.last_used_tick = 0
        self.on_device = True
        self.queued = False
        self.keys_tokens = self.is_watched = False
        self.use_score = NO_USES

    @classmethod
    def new_root(cls) -> "RadixNode":
        root = cls(_NO_TOKENS, PageCount(0), 0, None, 0)
        root.num_locks = 1
        return root

    def required_parent(self) -> "RadixNode":
        """The parent of a node that is not the root. Raises InvariantError for the root."""
        if self.parent is None:
            raise InvariantError("the root of the radix tree has no parent")
        return self.parent

    def forget_tokens(self) -> None:
        """Free the tokens of an evicted node: requests may still refer to the node itself."""
        self.token_ids = _NO_TOKENS
        self.num_tokens = 0
        # A key that is the node itself would be a cycle, which keeps the node in memory.
        self.key = 0

    def below(self) -> "Iterator[RadixNode]":
        """Every node below this one on the device, in any order."""
        stack = list(self.children.values())
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            yield node


class MatchEnd:
    """The end of a match, with the attributes of `PrefixMatch`."""

    def __init__(
        self,
        node: RadixNode,
        child: RadixNode | None,
        num_child_tokens: int,
    ) -> None:
        self.node: Final = node
        self.child: Final = child
        self.num_child_tokens: Final = num_child_tokens

    @property
    def end(self) -> int:
        """Tokens from the root."""
        return self.node.end + self.num_child_tokens


class PrefixMatch:
    """A cached prefix that was found.

    Example: nodes of 4 and 6 tokens on one path, and a prompt that shares the first 7 tokens with
    it. At page size 1, `node` is the first node, `child` the second, `num_child_tokens` is 3.

    Attributes:
        node: the deepest node on the device whose tokens all match.
        child: the child of `node` of which only the first tokens match, or None.
        num_child_tokens: matching tokens of `child`; whole pages.
        host: where the match ends once the nodes that are in host memory alone are loaded; None:
            at the same place.
        full: where the match ends for the layers with full attention; None: at the same place. A
            window or a state that is missing ends the match of all layers early.
        end: `touch` sets it to the node at the end of `host`, or else of the match.
    """

    def __init__(
        self,
        node: RadixNode,
        child: RadixNode | None = None,
        num_child_tokens: int = 0,
        host: MatchEnd | None = None,
        full: MatchEnd | None = None,
    ) -> None:
        self.node: Final = node
        self.child: Final = child
        self.num_child_tokens: Final = num_child_tokens
        self.host: Final = host
        self.full: Final = full
        self.end = node

    @property
    def num_tokens(self) -> int:
        """Tokens found on the device."""
        return self.node.end + self.num_child_tokens

    @property
    def num_host_tokens(self) -> int:
        """Further tokens that could be used after a load from host memory."""
        return 0 if self.host is None else self.host.end - self.num_tokens

    @property
    def full_len(self) -> int:
        """Tokens that the layers with full attention could use."""
        return self.num_tokens if self.full is None else self.full.end


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
