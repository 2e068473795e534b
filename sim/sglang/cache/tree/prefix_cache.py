"""What every prefix cache offers (`PrefixCache`), and whom a tree tells what happens in it.

As in SGLang 0.5.23 (`TreeComponent` in mem_cache/unified_cache/components/base.py): a node of the
tree keeps a datum for each part of the KV memory, and the tree tells all parts of matches,
insertions, splits and evictions. Host memory is told of the nodes themselves.

A drafter that reads the model's hidden states (EAGLE, MTP) computes its KV of a token from the
token after it. So cached KV of a token fits only where the next token is the same, too, and the
tree compares pairs of neighbouring tokens: n tokens are n - 1 pairs. Their last token is computed
anew even if its KV is there.

Rule 28 of docs/explanation/speculation.md. SGLang 0.5.23: `RadixKey.maybe_to_bigram_view` in
mem_cache/radix_cache.py, and `is_eagle` in mem_cache/kv_cache_builder.py.

Example: a prompt of the tokens a, b, c, d is cached as the pairs ab, bc, cd, with the KV of a, b
and c. A prompt that begins with a, b, x finds the pair ab: the KV of one token.
"""

from typing import Final

import numpy as np

from sim.core.errors import InvariantError
from sim.core.tokens import (
    GOLDEN_RATIO,
    LazyTokens,
    TokenIds,
    TokenSequence,
    finalise,
    kept_part,
    mixed,
)
from sim.engine.page_pool import CacheListener, Span
from sim.sglang.cache.tree.radix_node import PrefixMatch, RadixNode


class PrefixCache:
    """Base class of prefix caches: pages of KV, found by their token ids.

    Every method but `match` changes the cache. Token counts are multiples of the page size.

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

    def move_lock(self, old: RadixNode, new: RadixNode) -> None:
        """Undo one `lock` of a node, and lock another one."""
        raise NotImplementedError

    def lock_with_parts(self, end: RadixNode) -> "PathLock":
        """Protect what is on the device of a prefix, and what all parts need of it."""
        raise NotImplementedError

    def unlock_with_parts(self, lock: "PathLock") -> None:
        """Undo a `lock_with_parts`."""
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

        Returns tokens freed.
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

    def move_lock(self, old: RadixNode, new: RadixNode) -> None: ...

    def insert(
        self, token_ids: TokenSequence, owned_from: int, pages: Span, start: RadixNode | None = None
    ) -> tuple[RadixNode, int]:
        raise InvariantError(f"{len(token_ids)} tokens inserted into a cache that keeps nothing")

    def listen(self, listener: CacheListener) -> None: ...

    def evict(self, num_tokens: int) -> int:
        return 0


class TreePart:
    """Base class of what a part adds to the tree; a method left out does nothing.

    Attributes:
        dependents: parts that cannot use what they have at an inner node without this part.
    """

    def __init__(self) -> None:
        self.dependents: tuple[TreePart, ...] = ()

    # ---- matches -------------------------------------------------------------------------------

    def begin_match(self) -> None:
        """A walk begins at the root."""

    def allows_end(self, node: RadixNode, num_tokens: int) -> bool:
        """Whether a prefix that is on the device may end where the walk is now.

        The walk has come from the node's parent; its first `num_tokens` tokens match.
        """
        return True

    def allows_loaded_end(self, node: RadixNode, num_tokens: int) -> bool:
        """The same for a prefix of which host memory may have a part."""
        return True

    def used(self, end: RadixNode) -> None:
        """A prefix that ends at this node was found."""

    def lock(self, end: RadixNode) -> int:
        """Protect what a prefix that ends at this node needs; `unlock` takes what is returned."""
        return 0

    def unlock(self, end: RadixNode, start: int) -> None:
        """Undo one `lock` of this node, which returned `start`."""

    # ---- insertions ----------------------------------------------------------------------------

    def begin_insert(self) -> None:
        """An insertion begins."""

    def overlapped(self, node: RadixNode) -> None:
        """An insertion came to a cached node, and freed pages of the same tokens."""

    def brought_back(self, node: RadixNode) -> None:
        """An insertion has given its pages to a node that was in host memory alone."""

    def added_leaf(self, leaf: RadixNode) -> None:
        """An insertion has ended with a new leaf."""

    def end_insert(self, node: RadixNode) -> None:
        """An insertion has ended at this node."""

    # ---- nodes ---------------------------------------------------------------------------------

    def new_node(self, node: RadixNode) -> None:
        """Give a new node its datum."""

    def split(self, upper: RadixNode, lower: RadixNode) -> None:
        """The first tokens of a node, which is the lower one now, were moved to a new parent."""

    def drop(self, node: RadixNode) -> None:
        """Free what an unlocked node holds in the part's pool, if it holds something."""

    def drop_copy(self, node: RadixNode) -> None:
        """Free the copy in host memory of what a node holds in the pool, if there is one."""


class CopiesOfPool:
    """Base class of the copies in host memory of what nodes hold in a part's pool."""

    def save(self, node: RadixNode) -> None:
        """An inner node is about to lose what it holds on the device."""
        raise NotImplementedError

    def note_alone(self, node: RadixNode) -> None:
        """The node holds nothing on the device any more."""
        raise NotImplementedError

    def note_on_device(self, node: RadixNode) -> None:
        """The node holds something on the device again."""
        raise NotImplementedError

    def drop(self, node: RadixNode) -> None:
        """Free a node's copy, if it has one."""
        raise NotImplementedError

    def split(self, upper: RadixNode, lower: RadixNode) -> None:
        """A split has divided what a node holds."""
        raise NotImplementedError


class PathLock:
    """A lock of a prefix.

    Attributes:
        held: the last node of it that is on the device.
        starts: what `lock` of each part has returned.
    """

    def __init__(self, end: RadixNode, held: RadixNode, starts: list[int]) -> None:
        self.end: Final = end
        self.held: Final = held
        self.starts: Final = starts


class LowerTier:
    """Base class of what keeps nodes that were evicted from the device: host memory."""

    def continue_match(
        self, match: PrefixMatch, token_ids: TokenSequence, limit: int
    ) -> PrefixMatch:
        """A match that ended on the device, and how it goes on in host memory."""
        raise NotImplementedError

    def new_node(self, node: RadixNode) -> None:
        """Give a new node its state."""
        raise NotImplementedError

    def split(self, upper: RadixNode, lower: RadixNode) -> None:
        """The first tokens of a node, which is the lower one now, were moved to a new parent."""
        raise NotImplementedError

    def split_evicted(self, node: RadixNode, num_tokens: int) -> RadixNode:
        """Split a node that is not on the device; returns the new upper part."""
        raise NotImplementedError

    def bring_back(
        self, parent: RadixNode, token_ids: TokenSequence, pages: Span
    ) -> tuple[RadixNode, Span]:
        """Give pages to the nodes below `parent` that have these tokens in host memory alone.

        Returns the last of these nodes, and the pages that are left.
        """
        raise NotImplementedError

    def count_use(self, end: RadixNode, since: int) -> None:
        """As in `PrefixCache`; nodes that were used often enough are copied."""
        raise NotImplementedError

    def inserted_again(self, node: RadixNode) -> None:
        """An insertion has ended at a node that was there; parts may have given it something."""
        raise NotImplementedError

    def save(self, leaf: RadixNode) -> bool:
        """A leaf is about to leave the device; returns whether host memory keeps it."""
        raise NotImplementedError

    def may_drop(self, leaf: RadixNode) -> bool:
        """Whether a leaf that host memory does not keep may leave the device."""
        raise NotImplementedError

    def demote(self, leaf: RadixNode, parent: RadixNode) -> None:
        """A leaf that host memory keeps has left the device."""
        raise NotImplementedError

    def drop(self, leaf: RadixNode) -> None:
        """A leaf that host memory does not keep has left the device."""
        raise NotImplementedError


_GOLDEN_RATIO = np.uint64(GOLDEN_RATIO)
_MASK = (1 << 64) - 1


def pairs_of(token_ids: TokenIds) -> TokenIds:
    """A number for each pair of neighbouring tokens; two pairs share one in 2**64 cases.

    Args:
        token_ids: int64, shape [num_pairs + 1].

    Returns int64, shape [num_pairs].
    """
    tokens = token_ids.view(np.uint64)
    firsts = finalise(tokens[:-1] * _GOLDEN_RATIO)
    firsts += tokens[1:]
    return finalise(firsts).view(np.int64)


def _pair_of(token_id: int, next_id: int) -> int:
    """The number of one pair, as `pairs_of` has it."""
    pair = mixed((mixed(token_id * GOLDEN_RATIO & _MASK) + next_id) & _MASK)
    return pair - (1 << 64) if pair >> 63 else pair


class Pairs(LazyTokens):
    """The pairs of a sequence of tokens."""

    __slots__ = ("_tokens",)

    def __init__(self, tokens: TokenSequence) -> None:
        self._tokens = tokens

    def __len__(self) -> int:
        return max(len(self._tokens) - 1, 0)

    def __getitem__(self, part: slice, /) -> TokenIds:
        start, stop, _ = part.indices(len(self))
        return pairs_of(self._tokens[start : max(start, stop) + 1])

    def part(self, start: int, stop: int) -> TokenSequence:
        return Pairs(kept_part(self._tokens, start, stop + 1))

    def page_key(self, start: int, page_size: int) -> int | bytes:
        tokens = self._tokens
        if page_size > 1 or not isinstance(tokens, LazyTokens):
            return super().page_key(start, page_size)
        first, second = tokens.page_key(start, 1), tokens.page_key(start + 1, 1)
        if isinstance(first, int) and isinstance(second, int):
            return _pair_of(first, second)
        return super().page_key(start, page_size)
