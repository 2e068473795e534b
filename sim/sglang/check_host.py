"""The invariants of host memory (docs/explanation/invariants.md, INV-14)."""

from collections.abc import Iterator

from sim.core.errors import require
from sim.sglang.cache.radix_node import RadixNode
from sim.sglang.cache.tiered_cache import TieredRadixCache


def check_host_tier(cache: TieredRadixCache) -> None:
    """Verify host pages and copies, and that every copy that may be dropped can be found.

    Raises:
        InvariantError: an invariant is broken; the message names it.
    """
    memory, page_size = cache.memory, cache.memory.pool.page_size
    num_copied = 0
    for node in _nodes(cache.root):
        copied = node.host.pages is not None
        require(node.on_device or copied, "a node has KV neither on the device nor in host memory")
        num_copied += len(node.token_ids) if copied else 0
        _check_copy(node, page_size)
        if cache.settings.write_after_uses is not None:
            require(
                not copied or _has_copy_above(node), "a node has a copy, but its parent has none"
            )
        if not node.on_device:
            _check_host_node(node)
    require(num_copied == memory.used_tokens, "a host page is lost or used twice")


def _nodes(root: RadixNode) -> Iterator[RadixNode]:
    """Every node below the root, on the device or in host memory alone."""
    stack = [*root.children.values(), *root.host.children.values()]
    while stack:
        node = stack.pop()
        yield node
        stack += [*node.children.values(), *node.host.children.values()]


def _check_copy(node: RadixNode, page_size: int) -> None:
    copy = node.host.pages
    whole = copy is None or len(copy) * page_size == len(node.token_ids)
    require(whole, "a copy has another size than its node")


def _has_copy_above(node: RadixNode) -> bool:
    parent = node.parent
    return parent is not None and (parent.parent is None or parent.host.pages is not None)


def _check_host_node(node: RadixNode) -> None:
    parent = node.required_parent()
    require(not node.children, "a node on the device is below a node that is not")
    require(not (node.num_locks or len(node.pages)), "an evicted node is locked or has pages")
    require(not node.host.num_locks, "a host lock is left although its load is done")
    require(node.end == parent.end + len(node.token_ids), "a host node's end is wrong")
    findable = bool(node.host.children) or node.host.queued
    require(findable, "an unlocked leaf is missing from host memory's eviction queue")
