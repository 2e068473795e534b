"""What was sent to which replica: one radix tree over blocks whose nodes know who has them.

A guess of the replicas' prefix caches, as only what they are sent is known. One tree for all, so
that finding the best replica is one walk, however many there are. Its edges are block keys, which
stand for everything before them: a child is found by its first key alone, without its parent.
"""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from sim.des.routers.block_keys import BlockKeyArray


@dataclass(slots=True, eq=False)
class Node:
    """A run of blocks that whoever has its last block has in full.

    Attributes:
        start: blocks before it.
        keys: of its blocks.
        used: when each replica that has it was last sent it, first come first.
    """

    start: int
    keys: BlockKeyArray
    used: dict[int, int] = field(default_factory=dict)


class ReplicaMatch(NamedTuple):
    """The longest beginning that was sent to anyone, and who has had it for longest."""

    num_blocks: int
    replica: int


NO_MATCH = ReplicaMatch(0, -1)


class PrefixTree:
    """At most `max_blocks` blocks for each replica; the least recently sent go first.

    A replica that has a node has all nodes before it, and was sent those no less recently: what
    is evicted is a leaf of its.
    """

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._nodes: dict[int, Node] = {}
        self._num_blocks: dict[int, int] = {}
        # By replica: (use, -start, node) of each node it has; the use may be outdated.
        self._oldest: dict[int, list[tuple[int, int, Node]]] = {}
        self._uses = 0

    def num_blocks(self, replica: int) -> int:
        """Blocks that the replica is thought to have."""
        return self._num_blocks.get(replica, 0)

    def match(self, keys: BlockKeyArray) -> ReplicaMatch:
        """Look a prompt up; nothing counts as used."""
        start, found = 0, None
        while start < len(keys) and (node := self._nodes.get(int(keys[start]))) is not None:
            shared = _num_shared(node.keys, keys[start:])
            start, found = start + shared, node
            if shared < len(node.keys):
                break
        return NO_MATCH if found is None else ReplicaMatch(start, next(iter(found.used)))

    def insert(self, keys: BlockKeyArray, replica: int) -> None:
        """A prompt is sent to a replica."""
        self._uses += 1
        start = 0
        while start < len(keys):
            node = self._nodes.get(int(keys[start]))
            if node is None:
                # A copy: a view would keep the whole prompt's keys.
                node = self._add(Node(start, keys[start:].copy()))
            else:
                self._split(node, _num_shared(node.keys, keys[start:]))
            self._use(node, replica)
            start += len(node.keys)
        self._evict(replica)

    def _add(self, node: Node) -> Node:
        self._nodes[int(node.keys[0])] = node
        return node

    def _split(self, node: Node, num_blocks: int) -> None:
        """Leave the node so many blocks; a new one with the rest is no less used."""
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
    """Blocks at the beginning that are equal: keys that agree agree on all before."""
    most = min(len(keys), len(others))
    if keys[most - 1] == others[most - 1]:
        return most
    return int((keys[:most] != others[:most]).argmax())
