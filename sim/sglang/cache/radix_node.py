"""A node of the radix tree: a run of whole pages of tokens below its parent."""

from typing import Union

import numpy as np

from sim.core.token_sequences import TokenSequence
from sim.core.tokens import TokenIds
from sim.engine.page_pool import PageCount, Span

# A node is found by its first page: by its token at page size 1, else by their bytes.
ChildKey = Union[int, bytes, "RadixNode"]

# What an eviction policy makes of a node's uses: larger is better.
Worth = tuple[int, float]
NO_WORTH: Worth = (0, 0.0)
_NO_TOKENS: TokenIds = np.empty(0, dtype=np.int64)


class HostSide:
    """What the host tier knows of a node.

    Attributes:
        pages: the copy in host memory, or None.
        children: nodes below whose KV is in host memory alone, by the content of their first page.
        num_uses: requests that inserted the node or passed through it; a split inherits it.
        num_locks: loads that need this copy or one below it.
        queued: whether the heap of host leaves has an entry for this node.
    """

    __slots__ = ("children", "num_locks", "num_uses", "pages", "queued")

    def __init__(self) -> None:
        self.pages: Span | None = None
        self.children: dict[ChildKey, RadixNode] = {}
        self.num_uses = self.num_locks = 0
        self.queued = False


class RadixNode:
    """One edge and its end. Mutable; owned by its tree.

    Attributes:
        token_ids: tokens of this node alone, a multiple of the page size.
        num_tokens: how many they are; 0 once they are forgotten.
        key: what its parent has it under: the content of its first page, or itself as long as
            nobody looked for it there; then it is an only child.
        pages: the pages that hold their KV.
        end: tokens from the root to this node's end. A split never changes it.
        parent: None for the root only. Kept after eviction, see `RadixCache.match`.
        children: by their keys.
        rank: position among siblings in order of insertion; a split inherits it.
        num_locks: requests that hold this node or one below it.
        last_used_tick: logical time of the last use; no two equal.
        alive: False while its KV is not on the device: once evicted, unless it is loaded back.
        queued: whether the eviction heap has an entry for this node.
        worth: kept by the eviction policy; a split inherits it.
        host: kept by a cache with a host tier; without one it is never set.
    """

    host: HostSide

    __slots__ = (
        "alive",
        "children",
        "end",
        "host",
        "key",
        "last_used_tick",
        "num_locks",
        "num_tokens",
        "pages",
        "parent",
        "queued",
        "rank",
        "token_ids",
        "worth",
    )

    def __init__(
        self, token_ids: TokenSequence, pages: Span, end: int, parent: "RadixNode | None", rank: int
    ) -> None:
        self.token_ids = token_ids
        self.num_tokens = len(token_ids)
        self.key: ChildKey = self
        self.pages = pages
        self.end = end
        self.parent = parent
        self.children: dict[ChildKey, RadixNode] = {}
        self.rank = rank
        self.num_locks = 0
        self.last_used_tick = 0
        self.alive = True
        self.queued = False
        self.worth = NO_WORTH

    @classmethod
    def new_root(cls) -> "RadixNode":
        root = cls(_NO_TOKENS, PageCount(0), 0, None, 0)
        root.num_locks = 1
        return root

    def forget_tokens(self) -> None:
        """Requests may remember an evicted node; its tokens need not outlive it."""
        self.token_ids = _NO_TOKENS
        self.num_tokens = 0
