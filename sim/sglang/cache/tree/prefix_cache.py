"""What every prefix cache offers (`PrefixCache`), and the cache that never hits."""

from typing import Final

from sim.core.errors import InvariantError
from sim.core.tokens import TokenSequence
from sim.engine.page_pool import CacheListener, Span
from sim.sglang.cache.tree.radix_node import RadixNode


class MatchEnd:
    """Where a longer match ends; the attributes mean the same as those of PrefixMatch."""

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
        host: where the match ends if what is in host memory alone is loaded; None: not later.
        full: where the match of the layers with full attention ends, which may be later: parts of
            the memory end it early; or None.
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


class PrefixCache:
    """Base class of prefix caches: pages of KV, found by their token ids.

    Every method but `match` changes the cache.
    Token counts are multiples of the page size.

    Attributes:
        evictable_tokens: tokens of nodes that no request has locked; all of them can be evicted.
        protected_tokens: tokens of locked nodes.
        enabled: False for a cache that never hits.
        keeps_priorities: `note_priority` must be called after each `insert`.
        new_leaf: the node that the latest insertion has made at its end; None: it was there.
    """

    enabled = True

    def __init__(self) -> None:
        self.root = RadixNode.new_root()
        self.evictable_tokens = 0
        self.protected_tokens = 0
        self.keeps_priorities = False
        self.new_leaf: RadixNode | None = None

    def match(
        self, token_ids: TokenSequence, limit: int, start: RadixNode | None = None
    ) -> PrefixMatch:
        """The longest cached prefix of `token_ids[:limit]`. Changes nothing.

        `start` is where an earlier match of the same tokens ended: the search begins there.
        """
        raise NotImplementedError

    def touch(self, match: PrefixMatch) -> RadixNode:
        """Mark a match as used now; returns the node at its end.

        If the match ends inside a node, that node is split there.
        """
        raise NotImplementedError

    def count_use(self, node: RadixNode, since: int) -> None:
        """Count that one more request has used the nodes from position `since` to `node`'s end."""
        raise NotImplementedError

    def inserted_again(self, node: RadixNode) -> None:
        """The latest insertion ended at this node, which was there before it."""

    def note_priority(self, node: RadixNode, priority: int) -> None:
        """Note that a request of this priority inserted the nodes from the root to `node`."""

    def lock(self, node: RadixNode) -> None:
        """Protect a node and its ancestors from eviction. Each call needs one `unlock`."""
        raise NotImplementedError

    def unlock(self, node: RadixNode) -> None:
        """Undo one `lock`."""
        raise NotImplementedError

    def insert(
        self, token_ids: TokenSequence, owned_from: int, pages: Span, start: RadixNode | None = None
    ) -> tuple[RadixNode, int]:
        """Give pages to the cache.

        Args:
            token_ids: whole pages of tokens, from the beginning of a sequence.
            owned_from: pages of the tokens before this position belong to the cache already.
            pages: the pages of `token_ids[owned_from:]`. Pages of tokens that another request has
                cached meanwhile are duplicates and are freed.
            start: a locked node on the path of these tokens; tokens above it are not compared.
                `start.end <= owned_from` must hold, unless `pages` is empty.

        Returns:
            The node at which the tokens end, and how many tokens were cached on the device before.
        """
        raise NotImplementedError

    def listen(self, listener: CacheListener) -> None:
        """Tell a listener from now on which pages are on the device; the cache must be empty."""
        raise NotImplementedError

    def evict(self, num_tokens: int) -> int:
        """Evict whole leaves until at least `num_tokens` tokens are freed or no leaf is left.

        Returns:
            Tokens freed.
        """
        raise NotImplementedError


class NoPrefixCache(PrefixCache):
    """A prefix cache that never hits and keeps nothing."""

    enabled = False

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

    def listen(self, listener: CacheListener) -> None: ...

    def evict(self, num_tokens: int) -> int:
        return 0
