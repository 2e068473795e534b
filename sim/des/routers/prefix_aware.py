"""Prefix-aware routing: to the replica that got the same prefix before, while loads are even.

The rules are those of policy `cache_aware` of SGLang's gateway (sgl-model-gateway 0.3.2,
Apache-2.0), taken from its code. Deliberate differences: prompts are compared as blocks of tokens,
not as characters; the tree's size is enforced at every request, not every two minutes, by evicting
the blocks that were sent least recently; among equally loaded replicas the one with the fewest
blocks in the tree is chosen, not the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from sim.core.block_keys import BlockKeyArray, BlockKeys
from sim.core.request import RequestSpec
from sim.des.routers.router import RoutedReplica


class PrefixAware:
    """Chooses the replica that got the prompt's longest prefix, or the least loaded replica.

    The least loaded one is chosen if loads are uneven, or if too little of the prompt is known.

    Attributes:
        predicted_tokens: how many tokens of the latest prompt were sent to its replica before.

    Args:
        cache_threshold: while loads are even, choose by prefix if more than this share of the
            prompt is in the tree.
        balance_abs_threshold: loads are uneven if the largest exceeds the smallest by more than
            this ...
        balance_rel_threshold: ... and is more than this many times the smallest.
        max_tree_tokens: prompt tokens that the tree remembers for each replica.
        block_tokens: tokens in a block; prompts are compared block by block.
    """

    def __init__(
        self,
        *,
        cache_threshold: float,
        balance_abs_threshold: int,
        balance_rel_threshold: float,
        max_tree_tokens: int,
        block_tokens: int,
    ) -> None:
        self._cache_threshold = cache_threshold
        self._balance_abs_threshold = balance_abs_threshold
        self._balance_rel_threshold = balance_rel_threshold
        self._block_tokens = block_tokens
        self._keys = BlockKeys(block_tokens)
        self._tree = PrefixTree(max_tree_tokens // block_tokens)
        # By index, the number under which the tree knows a replica.
        self._numbers: list[int] = []
        self._next_number = 0
        self.predicted_tokens = 0

    def choose(self, spec: RequestSpec, replicas: Sequence[RoutedReplica]) -> int:
        if not self._numbers:
            self.changed([-1] * len(replicas))
        keys = self._keys.of(spec.prompt.token_ids())
        loads = [replica.num_unfinished for replica in replicas]
        chosen = self._least_loaded(loads)
        if not self._are_uneven(loads):
            match = self._tree.match(keys)
            found_tokens = match.num_blocks * self._block_tokens
            if found_tokens > self._cache_threshold * len(spec.prompt):
                chosen = self._numbers.index(match.replica)
        number = self._numbers[chosen]
        num_blocks = self._tree.match(keys, number).num_blocks
        # The last token is computed in any case.
        self.predicted_tokens = max(min(num_blocks * self._block_tokens, len(spec.prompt) - 1), 0)
        self._tree.insert(keys, number)
        return chosen

    def changed(self, kept: Sequence[int]) -> None:
        """Forget what was sent to replicas that have left; nothing was sent to new ones yet."""
        numbers = []
        for before in kept:
            # Before the first choice, no replica was sent anything.
            is_new = before < 0 or not self._numbers
            numbers.append(self._next_number if is_new else self._numbers[before])
            self._next_number += is_new
        for number in set(self._numbers).difference(numbers):
            self._tree.forget(number)
        self._numbers = numbers

    def _are_uneven(self, loads: Sequence[int]) -> bool:
        least, most = min(loads), max(loads)
        return (
            most - least > self._balance_abs_threshold
            and most > self._balance_rel_threshold * least
        )

    def _least_loaded(self, loads: Sequence[int]) -> int:
        """The least loaded replica; if several are, the one with the fewest blocks in the tree."""
        least = min(loads)
        return min(
            (replica for replica, load in enumerate(loads) if load == least),
            key=lambda replica: self._tree.num_blocks(self._numbers[replica]),
        )


@dataclass(slots=True, eq=False)
class Node:
    """Consecutive blocks that were always sent together.

    Attributes:
        start: number of blocks before the node.
        used: for each replica that got these blocks, the number of the latest prompt with them,
            counted over all prompts. The replica that got them first comes first.
    """

    start: int
    keys: BlockKeyArray
    used: dict[int, int] = field(default_factory=dict)


class ReplicaMatch(NamedTuple):
    """The longest prefix of a prompt that was sent before, and the replica that got it first."""

    num_blocks: int
    replica: int


NO_MATCH = ReplicaMatch(0, -1)


class PrefixTree:
    """A radix tree of the prompts that were sent to each replica.

    A router does not see the replicas' prefix caches, so it guesses them from what it sent. One
    tree serves all replicas: each node lists the replicas that got its blocks, so one walk finds
    the best replica. A block's key stands for all blocks up to its end, so a node is found by its
    first key alone, without its parent. The tree remembers at most `max_blocks` blocks for each
    replica, and evicts the least recently sent.

    A replica that got a node's blocks also got all blocks before them, at the same time or later.
    So the least recently sent node is always a leaf among that replica's nodes.
    """

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._nodes: dict[int, Node] = {}
        self._num_blocks: dict[int, int] = {}
        # For each replica, a heap of (`used` of the node, -start, node); the first may be outdated.
        self._oldest: dict[int, list[tuple[int, int, Node]]] = {}
        self._uses = 0

    def num_blocks(self, replica: int) -> int:
        return self._num_blocks.get(replica, 0)

    def match(self, keys: BlockKeyArray, replica: int | None = None) -> ReplicaMatch:
        """Find a prompt's longest known prefix, without changing when blocks were last sent.

        With a `replica`: what was sent to this one.
        """
        start, found = 0, None
        while start < len(keys) and (node := self._nodes.get(int(keys[start]))) is not None:
            if replica is not None and replica not in node.used:
                break
            shared = _num_shared(node.keys, keys[start:])
            start, found = start + shared, node
            if shared < len(node.keys):
                break
        return NO_MATCH if found is None else ReplicaMatch(start, next(iter(found.used)))

    def insert(self, keys: BlockKeyArray, replica: int) -> None:
        """Note that a prompt is sent to a replica."""
        self._uses += 1
        start = 0
        while start < len(keys):
            node = self._nodes.get(int(keys[start]))
            if node is None:
                # A copy, because a view would keep the keys of the whole prompt in memory.
                node = self._add(Node(start, keys[start:].copy()))
            else:
                self._split(node, _num_shared(node.keys, keys[start:]))
            self._use(node, replica)
            start += len(node.keys)
        self._evict(replica)

    def forget(self, replica: int) -> None:
        for first, node in list(self._nodes.items()):
            if node.used.pop(replica, None) is not None and not node.used:
                del self._nodes[first]
        self._num_blocks.pop(replica, None)
        self._oldest.pop(replica, None)

    def _add(self, node: Node) -> Node:
        self._nodes[int(node.keys[0])] = node
        return node

    def _split(self, node: Node, num_blocks: int) -> None:
        """Cut the node after `num_blocks` blocks; a new node gets the rest, and the same uses."""
        if num_blocks == len(node.keys):
            return
        rest = Node(node.start + num_blocks, node.keys[num_blocks:].copy(), dict(node.used))
        node.keys = node.keys[:num_blocks].copy()
        self._add(rest)
        for replica, use in rest.used.items():
            heappush(self._oldest[replica], (use, -rest.start, rest))

    def _use(self, node: Node, replica: int) -> None:
        if replica not in node.used:
            self._num_blocks[replica] = self.num_blocks(replica) + len(node.keys)
            heappush(self._oldest.setdefault(replica, []), (self._uses, -node.start, node))
        node.used[replica] = self._uses

    def _evict(self, replica: int) -> None:
        while self.num_blocks(replica) > self._max_blocks:
            oldest = self._oldest[replica]
            use, depth, node = heappop(oldest)
            if node.used[replica] != use:
                heappush(oldest, (node.used[replica], depth, node))
                continue
            del node.used[replica]
            self._num_blocks[replica] -= len(node.keys)
            if not node.used:
                del self._nodes[int(node.keys[0])]


def _num_shared(keys: BlockKeyArray, others: BlockKeyArray) -> int:
    """Number of equal blocks at the beginning. If two keys agree, all blocks before them do."""
    most = min(len(keys), len(others))
    if keys[most - 1] == others[most - 1]:
        return most
    return int((keys[:most] != others[:most]).argmax())
