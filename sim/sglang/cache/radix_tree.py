"""A tree over token ids, and how sequences are compared with it; nodes consist of whole pages."""

from sim.core.errors import InvariantError
from sim.core.tokens import LazyTokens, TokenSequence, num_common_tokens, page_key
from sim.sglang.cache.prefix_cache import MatchEnd, PrefixCache, PrefixMatch
from sim.sglang.cache.radix_node import ChildKey, RadixNode
from sim.sglang.cache.tree_part import TreePart


class RadixTree(PrefixCache):
    """The part of the radix cache that finds prefixes; it changes no KV."""

    def __init__(self, page_size: int) -> None:
        super().__init__()
        self._page_size = page_size
        self._parts: tuple[TreePart, ...] = ()

    def add_part(self, part: TreePart) -> None:
        """Tell a part of the KV memory from now on what happens; the cache must be empty."""
        self._parts = (*self._parts, part)
        part.new_node(self.root)

    def match(
        self, token_ids: TokenSequence, limit: int, start: RadixNode | None = None
    ) -> PrefixMatch:
        limit = min(limit, len(token_ids)) // self._page_size * self._page_size
        if self._parts:
            # What was a usable prefix at `start` may not be one any more.
            return self._match_with_parts(token_ids, limit)
        node = start or self.root
        # If `start` was evicted, its ancestors may still be cached: leaves are evicted first.
        while not node.on_device or node.end > limit:
            if node.parent is None:
                raise InvariantError("the root was evicted")
            node = node.parent
        while node.end < limit and node.children:
            self._key_only_child(node)
            child = node.children.get(self._child_key(token_ids, node.end))
            if child is None:
                break
            num_tokens = self._num_common_tokens(child, token_ids, node.end, limit)
            if num_tokens < child.num_tokens:
                return PrefixMatch(node, child, num_tokens)
            node = child
        return PrefixMatch(node)

    def _match_with_parts(self, token_ids: TokenSequence, limit: int) -> PrefixMatch:
        """The longest prefix that all parts can use."""
        for part in self._parts:
            part.begin_match()
        node = best = self.root
        while node.end < limit and node.children:
            self._key_only_child(node)
            child = node.children.get(self._child_key(token_ids, node.end))
            if child is None:
                break
            num_tokens = self._num_common_tokens(child, token_ids, node.end, limit)
            is_usable = True
            for part in self._parts:
                is_usable = part.allows_end(child, num_tokens) and is_usable
            if num_tokens < child.num_tokens:
                if is_usable:
                    return PrefixMatch(node, child, num_tokens)
                return PrefixMatch(best, full=MatchEnd(node, child, num_tokens))
            node = child
            if is_usable:
                best = node
        return PrefixMatch(best, full=MatchEnd(node, None, 0))

    def _child_key(self, token_ids: TokenSequence, start: int) -> ChildKey:
        """The key under which a parent finds the child whose tokens begin at `start`."""
        if isinstance(token_ids, LazyTokens):
            return token_ids.page_key(start, self._page_size)
        return page_key(token_ids[start : start + self._page_size])

    def _num_common_tokens(
        self, node: RadixNode, token_ids: TokenSequence, start: int, limit: int
    ) -> int:
        """How many of the node's tokens equal `token_ids[start:limit]`, floored to whole pages."""
        num_tokens = min(limit - start, node.num_tokens)
        num_common = num_common_tokens(node.token_ids, token_ids, start, num_tokens)
        if num_common is not None:
            return num_common // self._page_size * self._page_size
        self._expand(node)
        differs = node.token_ids[:num_tokens] != token_ids[start : start + num_tokens]
        first = int(differs.argmax())
        if differs[first]:
            num_tokens = first
        return num_tokens // self._page_size * self._page_size

    def _expand(self, node: RadixNode) -> None:
        """Store the node's tokens as an array, because they are likely to be compared again."""
        if isinstance(node.token_ids, LazyTokens):
            node.token_ids = node.token_ids[:]

    def _key_only_child(self, node: RadixNode) -> None:
        """Compute the key of an only child, if it has none yet.

        Keys are computed late because many leaves are evicted before any request looks for them.
        """
        if len(node.children) != 1:
            return
        (child,) = node.children.values()
        if child.key is child:
            child.key = self._child_key(child.token_ids, 0)
            node.children = {child.key: child}
