"""What policies need in compiled form: the order of dfs-weight (rule 8), and a seeded shuffle."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.request import SglangRequest


def dfs_weight_order(waiting: Sequence[SglangRequest], root: RadixNode) -> list[SglangRequest]:
    """Order requests by a post-order walk over the nodes at which their cached prefixes end.

    A node's weight is the number of waiting requests in its subtree. The requests of a node's
    children come before the node's own requests. Children go by weight, heaviest first, ties in
    order of insertion; requests of one node keep their order.

    Example: request 1 ends at node A, requests 2 and 3 end at B, and 4 ends at C. B and C are
    children of A. The order is 2, 3 (B weighs 2), 4 (C weighs 1), 1.
    """
    own: dict[RadixNode, list[SglangRequest]] = {}
    for request in waiting:
        own.setdefault(request.kv.found or root, []).append(request)
    nodes = dfs_weight_nodes([(node, len(requests)) for node, requests in own.items()], root)
    return [request for node in nodes for request in own[node]]


def dfs_weight_nodes(own: Iterable[tuple[RadixNode, int]], root: RadixNode) -> list[RadixNode]:
    """Order nodes by this walk. `own`: each node that has waiting requests, with their number."""
    own_weight = dict(own)
    weight: dict[RadixNode, int] = {}
    children: dict[RadixNode, list[RadixNode]] = {}
    for end, num_requests in own_weight.items():
        node: RadixNode = end
        while node.parent is not None:
            known = weight.get(node, 0)
            if not known:
                children.setdefault(node.parent, []).append(node)
            weight[node] = known + num_requests
            node = node.parent

    order: list[RadixNode] = []
    stack: list[tuple[RadixNode, bool]] = [(root, False)]
    while stack:
        node, children_done = stack.pop()
        below = [] if children_done else children.get(node, [])
        if below:
            stack.append((node, True))
            heaviest_first = sorted(below, key=lambda child: (-weight[child], child.rank))
            stack.extend((child, False) for child in reversed(heaviest_first))
        elif node in own_weight:
            order.append(node)
    return order


T = TypeVar("T")


class Shuffle:
    """Shuffles as `random.shuffle` does after `random.seed(seed)`, in CPython 3.11 to 3.14.

    SGLang's policy `random` shuffles with Python's global generator. This class is the same
    Mersenne twister, seeded the same way, without global state.
    """

    def __init__(self, seed: int) -> None:
        words = [seed & 0xFFFFFFFF]
        while seed := seed >> 32:
            words.append(seed & 0xFFFFFFFF)
        self._twister = np.random.RandomState(words)
        self._words = self._draw_words()

    def __call__(self, items: Sequence[T]) -> list[T]:
        shuffled = list(items)
        for i in range(len(shuffled) - 1, 0, -1):
            j = self._below(i + 1)
            shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
        return shuffled

    def _draw_words(self) -> Iterator[int]:
        while True:
            yield from self._twister.randint(0, 1 << 32, size=1024, dtype=np.uint32).tolist()

    def _below(self, bound: int) -> int:
        shift = 32 - bound.bit_length()
        while (drawn := next(self._words) >> shift) >= bound:
            pass
        return drawn
