"""Invariants of SGLang's memory: pages, radix tree, host memory, the pools of parts.

docs/explanation/invariants.md: INV-14 is about host memory, INV-17 about windows, INV-19 about
states.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import cast

from sim.core.errors import require
from sim.engine.core import EngineCore
from sim.installed.scheduler import EngineScheduler
from sim.sglang.cache.host.memory import PoolCopies
from sim.sglang.cache.host.tree import HostTree
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.part import MemoryPart
from sim.sglang.cache.pool_tree import PoolTree
from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.roles.decode_server import DecodeQueues
from sim.sglang.scheduler.scheduler import SglangScheduler


def check_sglang_memory(engine: EngineCore) -> None:
    """Verify the pages, the prefix cache, and host memory if the server has it.

    Raises InvariantError: an invariant is broken; the message names it.
    """
    if isinstance(engine.scheduler, EngineScheduler):
        engine.scheduler.check()
        return
    kv = cast("KVCacheManager", engine.kv)
    _check_pages(kv, cast("Iterable[SglangRequest]", engine.requests.values()))
    _check_tree(kv)
    for part in kv.parts:
        if part.host is not None:
            check_host_memory(kv.cache.root, part.host)
        check_part(part, cast("Iterable[SglangRequest]", engine.requests.values()))
    queues = cast("SglangScheduler", engine.scheduler).queues
    if isinstance(queues, DecodeQueues):
        _check_backups(queues, kv)
        _check_restores(queues)


def _check_backups(queues: DecodeQueues, kv: KVCacheManager) -> None:
    """Host memory has whole pages of what each retracted request had computed, and no others."""
    kept = sum(
        kv.ceil_page(request.prompt_len + max(request.num_generated - 1, 0))
        for request in queues.preallocation.retracted
    )
    used = queues.backups.used_tokens
    require(kept == used, f"{used} tokens in host memory, but retracted requests have {kept}")


def _check_restores(queues: DecodeQueues) -> None:
    """With host memory, the requests in transfer have a prefix each, which they lock or will."""
    restores = queues.restores
    if restores is None:
        return
    rids = [request.rid for request in queues.transfers.requests]
    require(rids == restores.rids, "a request in transfer has no prefix, or another request has")
    for request in queues.transfers.requests:
        locked = request.kv.locked
        has_prefix = locked is not None and locked.end <= request.kv.protected_len
        require(has_prefix, "a request has locked more than the prefix that was found for it")


def _check_pages(kv: KVCacheManager, requests: Iterable[SglangRequest]) -> None:
    """Every page is free, in the tree, or owned by exactly one request."""
    num_tree = kv.cache.evictable_tokens + kv.cache.protected_tokens
    num_owned = sum(
        kv.ceil_page(request.seq_len) - request.kv.protected_len
        for request in requests
        if request.kv.locked is not None
    )
    total = kv.free_tokens + num_tree + num_owned
    require(
        total == kv.pool_tokens,
        f"{kv.free_tokens} free + {num_tree} cached + {num_owned} held tokens are {total}, "
        f"not {kv.pool_tokens}",
    )


def _check_tree(kv: KVCacheManager) -> None:
    """The token counts are right, and all tokens counted as evictable can be evicted."""
    tokens: Counter[bool] = Counter()
    for node in kv.cache.root.below():
        tokens[node.num_locks > 0] += len(node.token_ids)
        _check_node(node, kv.page_size)
    require(tokens[True] == kv.cache.protected_tokens, "the count of protected tokens is wrong")
    require(tokens[False] == kv.cache.evictable_tokens, "the count of evictable tokens is wrong")


def _check_node(node: RadixNode, page_size: int) -> None:
    parent = node.required_parent()
    require(node.on_device, "an evicted node is still in the tree")
    num_tokens = len(node.token_ids)
    require(num_tokens == len(node.pages) * page_size > 0, "a node is not made of whole pages")
    require(node.end == parent.end + num_tokens, "a node's end is wrong")
    require(
        node.num_locks <= parent.num_locks or not parent.parent,
        "a node has more locks than its parent",
    )
    require(
        node.num_locks > 0 or bool(node.children) or node.queued,
        "an unlocked leaf is missing from the eviction queue",
    )


def check_host_memory(root: RadixNode, host: HostTree) -> None:
    """Verify host pages and copies, and that every copy that may be dropped can be found.

    Raises InvariantError: an invariant is broken; the message names it.
    """
    memory, page_size = host.memory, host.memory.pool.page_size
    num_copied = num_held = 0
    locks: Counter[RadixNode] = Counter()
    if host.storage is not None:
        num_held = host.storage.num_held_pages() * page_size
        for end, start in host.storage.locks():
            locks.update(_path(end, start))
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
            _check_host_node(node, locks[node])
    require(num_copied + num_held == memory.used_tokens, "a host page is lost or used twice")
    for part in memory.parts:
        num_units = 0 if host.storage is None else host.storage.num_held_units(part)
        _check_part(root, part, num_units)


def _check_part(root: RadixNode, copies: PoolCopies, num_held: int) -> None:
    """Every unit of a part's pool in host memory is free, or the copy of one node.

    `num_held` of them belong to fetches. A copy that has come while it was locked is in the order.
    """
    num_copied = 0
    for node in _nodes(root):
        copy, is_held = copies.tree.datum_of_copy(node), copies.tree.datum(node).holds
        num_copied += copies.tree.num_units(node) if copy.holds else 0
        require(node.on_device or not is_held, "a node has units of a pool, but no pages")
        is_alone, is_ordered = copy.holds and not is_held, copy.newer is not None
        may_differ = copy.num_locks > 0 and not is_ordered
        require(is_ordered == is_alone or may_differ, "the order of copies is wrong")
    total = copies.pool.free_units + num_copied + num_held
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


def _path(end: RadixNode, start: int) -> Iterator[RadixNode]:
    """The nodes up to `end` that are behind the first `start` tokens."""
    node = end
    while node.parent is not None and node.end > start:
        yield node
        node = node.parent


def _check_host_node(node: RadixNode, num_locks: int) -> None:
    """`num_locks`: locks of its copy by what goes to a store, or comes from there."""
    parent = node.required_parent()
    require(not node.children, "a node on the device is below a node that is not")
    require(not (node.num_locks or len(node.pages)), "an evicted node is locked or has pages")
    require(node.host.num_locks == num_locks, "a host lock is left although its load is done")
    require(node.end == parent.end + len(node.token_ids), "a host node's end is wrong")
    findable = bool(node.host.children or num_locks) or node.host.queued
    require(findable, "an unlocked leaf is missing from host memory's eviction queue")


def check_part(part: MemoryPart, requests: Iterable[SglangRequest]) -> None:
    """Verify that every unit of the part's pool is free, in the tree, or one request's.

    Raises InvariantError: an invariant is broken; the message names it.
    """
    pool = part.pool
    if pool is None:
        return
    num_tree = 0 if part.tree is None else _num_in_tree(part.tree)
    num_held = sum(part.num_held(request.kv, request.seq_len) for request in requests)
    total = pool.free_units + num_tree + num_held
    require(
        total == pool.num_units,
        f"of a part's pool, {pool.free_units} free + {num_tree} cached + {num_held} held units"
        f" are {total}, not {pool.num_units}",
    )


def _num_in_tree(tree: PoolTree) -> int:
    """Units that nodes hold, after checking the counts of the tree."""
    num_units: Counter[bool] = Counter()
    for node in tree.tree.root.below():
        datum = tree.datum(node)
        require(datum.num_locks <= node.num_locks, "a node is locked in a part's pool alone")
        require(datum.holds == (datum.newer is not None), "the order of uses is wrong")
        if datum.holds:
            num_units[datum.num_locks > 0] += tree.num_units(node)
    require(num_units[True] == tree.protected_units, "the count of protected units is wrong")
    require(num_units[False] == tree.evictable_units, "the count of evictable units is wrong")
    return num_units.total()
