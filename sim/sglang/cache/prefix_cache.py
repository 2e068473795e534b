"""The prefix cache's seam, and the cache that never hits."""

from typing import NamedTuple, Protocol

from sim.core.errors import InvariantError
from sim.core.token_sequences import TokenSequence
from sim.engine.page_pool import Span
from sim.sglang.cache.radix_node import RadixNode


class HostMatch(NamedTuple):
    """What follows a match of whole nodes, in host memory alone; attributes as in PrefixMatch."""

    node: RadixNode
    child: RadixNode | None
    num_child_tokens: int


class PrefixMatch:
    """A cached prefix, as found. Never changed.

    Attributes:
        node: deepest node on the device that matches whole.
        child: the node below it that matches in part, or None.
        num_child_tokens: how many of the child's tokens match; whole pages.
        host: what goes on from there in host memory, or None.
    """

    __slots__ = ("child", "host", "node", "num_child_tokens")

    def __init__(
        self,
        node: RadixNode,
        child: RadixNode | None = None,
        num_child_tokens: int = 0,
        host: HostMatch | None = None,
    ) -> None:
        self.node = node
        self.child = child
        self.num_child_tokens = num_child_tokens
        self.host = host

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PrefixMatch)
            and self.node is other.node
            and self.child is other.child
            and self.num_child_tokens == other.num_child_tokens
            and self.host == other.host
        )

    def __hash__(self) -> int:
        return hash((self.node.end, self.num_child_tokens))

    @property
    def num_tokens(self) -> int:
        """Tokens found on the device."""
        return self.node.end + self.num_child_tokens

    @property
    def num_host_tokens(self) -> int:
        """Tokens found beyond them, in host memory."""
        if self.host is None:
            return 0
        return self.host.node.end + self.host.num_child_tokens - self.node.end


class PrefixCache(Protocol):
    """Pages of KV kept by their token ids. `match` is pure; every other verb mutates.

    Token counts are multiples of the page size. `evictable_tokens` counts tokens no request holds;
    all of them can be evicted.
    """

    evictable_tokens: int
    protected_tokens: int

    @property
    def enabled(self) -> bool:
        """False for a cache that never hits."""
        ...

    @property
    def root(self) -> RadixNode: ...

    def match(
        self, token_ids: TokenSequence, limit: int, start: RadixNode | None = None
    ) -> PrefixMatch:
        """Longest cached prefix of `token_ids[:limit]`. Pure.

        `start` is a node an earlier match of the same tokens ended at: the search goes on there.
        """
        ...

    def touch(self, match: PrefixMatch) -> RadixNode:
        """Mark a match as used now. Cuts its last node where the match ends; returns that end."""
        ...

    def count_use(self, node: RadixNode, since: int) -> None:
        """One more request has used the tokens up to `node`'s end; those before `since` counted."""
        ...

    def lock(self, node: RadixNode) -> None:
        """Protect a node and its ancestors from eviction, once more."""
        ...

    def unlock(self, node: RadixNode) -> None:
        """Take back one `lock`."""
        ...

    def insert(
        self, token_ids: TokenSequence, owned_from: int, pages: Span, start: RadixNode | None = None
    ) -> tuple[RadixNode, int]:
        """Give pages to the cache.

        Args:
            token_ids: whole pages of tokens.
            owned_from: tokens before it belong to the cache already.
            pages: the pages of `token_ids[owned_from:]`. Those cached already are freed.
            start: a locked node on the way of these tokens; what is above it is not compared.
                Its end is at most `owned_from`, or `pages` is empty.

        Returns:
            The node the tokens end at, and how many tokens were cached before.
        """
        ...

    def evict(self, num_tokens: int) -> int:
        """Evict whole leaves until at least `num_tokens` are freed or none is left.

        Returns:
            Tokens freed.
        """
        ...


class NoPrefixCache:
    """A prefix cache that never hits and keeps nothing."""

    enabled = False

    def __init__(self) -> None:
        self.root = RadixNode.new_root()
        self.evictable_tokens = 0
        self.protected_tokens = 0

    def match(
        self, token_ids: TokenSequence, limit: int, start: RadixNode | None = None
    ) -> PrefixMatch:
        return PrefixMatch(self.root)

    def touch(self, match: PrefixMatch) -> RadixNode:
        return match.node

    def count_use(self, node: RadixNode, since: int) -> None: ...

    def lock(self, node: RadixNode) -> None: ...

    def unlock(self, node: RadixNode) -> None: ...

    def insert(
        self, token_ids: TokenSequence, owned_from: int, pages: Span, start: RadixNode | None = None
    ) -> tuple[RadixNode, int]:
        raise InvariantError(f"{len(token_ids)} tokens inserted into a cache that keeps nothing")

    def evict(self, num_tokens: int) -> int:
        return 0
