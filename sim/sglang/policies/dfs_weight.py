"""Policy dfs-weight: depth first through the prefix tree, heaviest subtree first (rule 8)."""

from collections.abc import Sequence

from sim.sglang.cache.radix_node import RadixNode
from sim.sglang.request import SglangRequest


def dfs_weight_order(waiting: Sequence[SglangRequest], root: RadixNode) -> list[SglangRequest]:
    """Order requests by a post-order walk over the nodes at which their cached prefixes end.

    A node's weight is the number of waiting requests in its subtree. The requests of a node's
    children come before the node's own requests. Children go by weight, heaviest first, ties in
    order of insertion; requests of one node keep their order.

    Example: request 1 ends at node A, requests 2 and 3 end at B, and 4 ends at C. B and C are
    children of A. The order is 2, 3 (B weighs 2), 4 (C weighs 1), 1.
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
