"""A tree over token ids: how it is searched, what counts as used, and what is locked.

Nodes consist of whole pages. A conversation's next prompt is the one before it, its answer and a
new message. A search from the root would compare it with a node for each message, so it begins
where the turn before it ended (`Conversations`).
"""

from sim.core.errors import InvariantError
from sim.core.tokens import LazyTokens, Prompt, SegmentPrompt, TokenSequence, page_key
from sim.core.tokens import num_common_tokens as num_common
from sim.sglang.cache.tree.prefix_cache import LowerTier, PathLock, PrefixCache, TreePart
from sim.sglang.cache.tree.radix_node import ChildKey, LeafQueue, MatchEnd, PrefixMatch, RadixNode

# Every use of a path advances the clock by this many ticks: more than any path has nodes, so that
# each node gets a tick of its own.
_DEEPEST_PATH = 1 << 24
# So many conversations are kept before those whose KV was evicted are let go.
_FEW_CONVERSATIONS = 1024


class RadixTree(PrefixCache):
    """The part of the radix cache that finds prefixes and locks them; it changes no KV.

    A parent finds a child by the place of its first page in a stream, which takes no tokens. Once a
    page below it is not known to be in a stream, it finds all its children by their tokens.

    Attributes:
        leaves: the queue of leaves, in the order of the eviction policy.
        changes: what has happened to watched nodes: a node with the key of its new child; or one
            with None: it is evicted, or finds its children by other keys. Whoever watches nodes
            empties the list.
    """

    def __init__(self, page_size: int, leaves: LeafQueue) -> None:
        super().__init__()
        self.leaves = leaves
        self._tick = 0
        self._page_size = page_size
        self._parts: tuple[TreePart, ...] = ()
        self._host: LowerTier | None = None
        self.changes: list[tuple[RadixNode, ChildKey | None]] = []

    def add_part(self, part: TreePart) -> None:
        """Tell a part of the KV memory from now on what happens; the cache must be empty.

        Parts are added in the order of what can be used without what: a state at an inner node is
        of no use without the window before it (SGLang 0.5.23's `eviction_priority`).
        """
        for earlier in self._parts:
            earlier.dependents = (*earlier.dependents, part)
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
            child = node.children.get(self.child_key(node, token_ids, node.end))
            if child is None:
                break
            num_tokens = self.num_common_tokens(child, token_ids, node.end, limit)
            if num_tokens < child.num_tokens:
                return PrefixMatch(node, child, num_tokens)
            node = child
        match = PrefixMatch(node)
        return match if self._host is None else self._host.continue_match(match, token_ids, limit)

    def _match_with_parts(self, token_ids: TokenSequence, limit: int) -> PrefixMatch:
        """The longest prefix that all parts can use: now, and after a load from host memory."""
        for part in self._parts:
            part.begin_match()
        node = self.root
        on_device = loaded = last = MatchEnd(node, None, 0)
        while last.child is None and node.end < limit:
            child = self.find_child(node, token_ids)
            if child is None:
                break
            num_tokens = self.num_common_tokens(child, token_ids, node.end, limit)
            is_usable, is_loadable = child.on_device, self._host is not None
            for part in self._parts:
                is_usable = part.allows_end(child, num_tokens) and is_usable
                if self._host is not None:
                    is_loadable = part.allows_loaded_end(child, num_tokens) and is_loadable
            is_whole = num_tokens == child.num_tokens
            last = MatchEnd(child, None, 0) if is_whole else MatchEnd(node, child, num_tokens)
            if is_usable:
                on_device = last
            if is_usable or is_loadable:
                loaded = last
            node = child
        return PrefixMatch(
            on_device.node,
            on_device.child,
            on_device.num_child_tokens,
            host=None if loaded is on_device else loaded,
            full=None if last is on_device else last,
        )

    def find_child(self, node: RadixNode, token_ids: TokenSequence) -> RadixNode | None:
        """The child, on the device or in host memory, that begins with the tokens after `node`."""
        if not (node.children or (self._host is not None and node.host.children)):
            return None
        self._key_only_child(node)
        key = self.child_key(node, token_ids, node.end)
        child = node.children.get(key)
        if child is None and self._host is not None:
            child = node.host.children.get(key)
        return child

    def child_key(self, parent: RadixNode, token_ids: TokenSequence, start: int) -> ChildKey:
        """The key under which a parent finds the child whose tokens begin at `start`."""
        page_size = self._page_size
        if not isinstance(token_ids, LazyTokens):
            if page_size > 1 and not parent.keys_tokens:
                self._key_by_tokens(parent)
            return page_key(token_ids[start : start + page_size])
        if page_size > 1 and not parent.keys_tokens:
            key = token_ids.place_key(start, page_size)
            if key is not None:
                return key
            self._key_by_tokens(parent)
        return token_ids.page_key(start, page_size)

    def _key_by_tokens(self, parent: RadixNode) -> None:
        """Let a parent find all its children by their tokens from now on."""
        parent.keys_tokens = True
        self._make_keys(parent, parent.children)
        if self._host is not None:
            self._make_keys(parent, parent.host.children)
        if parent.is_watched:
            self.changes.append((parent, None))

    def _make_keys(self, parent: RadixNode, children: dict[ChildKey, RadixNode]) -> None:
        """Make new keys for all children but one that has none yet."""
        nodes = list(children.values())
        children.clear()
        for child in nodes:
            if child.key is not child:
                child.key = self.child_key(parent, child.token_ids, 0)
            children[child.key] = child

    def num_common_tokens(
        self, node: RadixNode, token_ids: TokenSequence, start: int, limit: int
    ) -> int:
        """How many of the node's tokens equal `token_ids[start:limit]`, floored to whole pages."""
        num_tokens = min(limit - start, node.num_tokens)
        num_same = num_common(node.token_ids, token_ids, start, num_tokens)
        if num_same is not None:
            return num_same // self._page_size * self._page_size
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
            child.key = self.child_key(node, child.token_ids, 0)
            node.children = {child.key: child}

    # ---- use -----------------------------------------------------------------------------------

    def _use_path(self, end: RadixNode) -> None:
        """Mark all nodes from the root to `end` as used, in this order: deeper is later."""
        tick = self._tick = self._tick + _DEEPEST_PATH
        node: RadixNode | None = end
        while node is not None:
            node.last_used_tick = tick
            tick -= 1
            node = node.parent

    def use(self, node: RadixNode) -> None:
        """Mark a node as used now."""
        self._tick += 1
        node.last_used_tick = self._tick

    def lock(self, node: RadixNode) -> None:
        current: RadixNode = node
        while current.parent is not None:
            self._lock_node(current)
            current = current.parent

    def _lock_node(self, node: RadixNode) -> None:
        if not node.num_locks:
            self.evictable_tokens -= node.num_tokens
            self.protected_tokens += node.num_tokens
        node.num_locks += 1

    def unlock(self, node: RadixNode) -> None:
        current: RadixNode = node
        while current.parent is not None:
            if not current.num_locks:
                raise InvariantError("a node was unlocked more often than it was locked")
            current.num_locks -= 1
            if not current.num_locks:
                self.evictable_tokens += current.num_tokens
                self.protected_tokens -= current.num_tokens
                if not current.children:
                    self.leaves.offer(current)
            current = current.parent

    def move_lock(self, old: RadixNode, new: RadixNode) -> None:
        shared = new
        while shared.parent is not None and shared.end > old.end:
            shared = shared.parent
        if shared is not old or new is old:
            self.unlock(old)
            self.lock(new)
            return
        # What both protect stays locked as often as it is.
        current = new
        while current is not old:
            self._lock_node(current)
            current = current.required_parent()

    def lock_with_parts(self, end: RadixNode) -> PathLock:
        held = end
        while not held.on_device:
            held = held.required_parent()
        self.lock(held)
        return PathLock(end, held, [part.lock(end) for part in self._parts])

    def unlock_with_parts(self, lock: PathLock) -> None:
        for part, start in zip(self._parts, lock.starts, strict=True):
            part.unlock(lock.end, start)
        self.unlock(lock.held)


class Turn:
    """A request of a conversation.

    Attributes:
        start: a node on the path of its prompt, for the first match; None: none is known.
    """

    __slots__ = ("conversation", "prompt", "start")

    def __init__(self, conversation: str, prompt: SegmentPrompt, start: RadixNode | None) -> None:
        self.conversation = conversation
        self.prompt = prompt
        self.start = start


class Conversations:
    """The latest turn of each conversation that a server has served, and the node at its end.

    That it names the same conversation says nothing of a prompt's tokens: they are compared, by the
    segments of both prompts. A node keeps its path while it is in the tree. `RadixCache.match`
    takes one that was evicted, too.
    """

    def __init__(self) -> None:
        self._ends: dict[str, tuple[SegmentPrompt, RadixNode]] = {}
        self._most = _FEW_CONVERSATIONS

    def __len__(self) -> int:
        return len(self._ends)

    def begin(self, conversation: str, prompt: Prompt, num_fewer: int) -> Turn | None:
        """A turn begins; None: of such a prompt, or without a conversation, nothing is kept.

        `num_fewer`: by so much a node's end is less than the number of its path's tokens.
        """
        if not conversation or not isinstance(prompt, SegmentPrompt):
            return None
        start: RadixNode | None = None
        latest = self._ends.get(conversation)
        if latest is not None:
            earlier, start = latest
            num_tokens = num_shared_tokens(prompt, earlier) - num_fewer
            while start.parent is not None and start.end > num_tokens:
                start = start.parent
        return Turn(conversation, prompt, start)

    def end(self, turn: Turn, end: RadixNode) -> None:
        """A turn is over; its latest match or insertion ended at this node."""
        self._ends[turn.conversation] = turn.prompt, end
        if len(self._ends) > self._most:
            self._ends = {key: kept for key, kept in self._ends.items() if kept[1].on_device}
            self._most = max(2 * len(self._ends), _FEW_CONVERSATIONS)


def num_shared_tokens(prompt: SegmentPrompt, other: SegmentPrompt) -> int:
    """The tokens of the whole segments with which both prompts begin."""
    ours, others = prompt.segments, other.segments
    if ours[: len(others)] == others:
        return len(other)
    num_tokens = 0
    for segment, its in zip(ours, others, strict=False):
        if segment != its:
            break
        num_tokens += segment[1]
    return num_tokens
