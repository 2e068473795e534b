"""Order of policy dfs-weight: down the prefix tree, heaviest subtree first (rule 8)."""

from collections.abc import Sequence

from sim.sglang.cache.radix_node import RadixNode
from sim.sglang.request import SglangRequest


def dfs_weight_order(waiting: Sequence[SglangRequest], root: RadixNode) -> list[SglangRequest]:
    """Order requests by a post-order walk over the nodes their prefixes end at.

    A node's weight is the number of waiting requests in its subtree. Children come before the
    node's own requests, by descending weight, ties by insertion; a node's own requests keep their
    order. Only nodes with waiting requests below them are visited.
    """
    own: dict[int, list[SglangRequest]] = {}
    weight: dict[int, int] = {}
    children: dict[int, list[RadixNode]] = {}
    for request in waiting:
        node = request.kv.found or root
        own.setdefault(id(node), []).append(request)
        while node.parent is not None:
            if id(node) not in weight:
                children.setdefault(id(node.parent), []).append(node)
            weight[id(node)] = weight.get(id(node), 0) + 1
            node = node.parent

    order: list[SglangRequest] = []
    stack: list[tuple[RadixNode, bool]] = [(root, False)]
    while stack:
        node, children_done = stack.pop()
        if children_done:
            order.extend(own.get(id(node), ()))
            continue
        stack.append((node, True))
        heaviest_first = sorted(
            children.get(id(node), ()), key=lambda child: (-weight[id(child)], child.rank)
        )
        stack.extend((child, False) for child in reversed(heaviest_first))
    return order
