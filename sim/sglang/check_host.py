"""The invariants of host memory (docs/explanation/invariants.md, INV-14)."""

from collections.abc import Iterator

from sim.core.errors import require
from sim.sglang.cache.host.pool_copies import PoolCopies
from sim.sglang.cache.host.tree import HostTree
from sim.sglang.cache.tree.radix_node import RadixNode


def check_host_memory(root: RadixNode, host: HostTree) -> None:
    """Verify host pages and copies, and that every copy that may be dropped can be found.

    Raises:
        InvariantError: an invariant is broken; the message names it.
    """
    memory, page_size = host.memory, host.memory.pool.page_size
    num_copied = 0
    for node in _nodes(root):
        copied = node.host.pages is not None
        require(node.on_device or copied, "a node has KV neither on the device nor in host memory")
        num_copied += len(node.token_ids) if copied else 0
        _check_copy(node, page_size)
        if host.settings.write_after_uses is not None:
            require(
                not copied or _has_copy_above(node), "a node has a copy, but its parent has none"
            )
        if not node.on_device:
            _check_host_node(node)
    require(num_copied == memory.used_tokens, "a host page is lost or used twice")
    for part in memory.parts:
        _check_part(root, part)


def _check_part(root: RadixNode, copies: PoolCopies) -> None:
    """Every unit of a part's pool in host memory is free, or the copy of one node."""
    num_copied = 0
    for node in _nodes(root):
        copy, is_held = copies.tree.datum_of_copy(node), copies.tree.datum(node).holds
        num_copied += copies.tree.num_units(node) if copy.holds else 0
        require(node.on_device or not is_held, "a node has units of a pool, but no pages")
        is_alone = copy.holds and not (is_held or copy.num_locks)
        require(is_alone == (copy.newer is not None), "the order of copies is wrong")
    total = copies.pool.free_units + num_copied
    require(total == copies.pool.num_units, "a unit in host memory is lost or used twice")


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
