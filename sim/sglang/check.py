"""Invariants of SGLang's KV: pages, radix tree, host memory (docs/explanation/invariants.md)."""

from collections import Counter
from collections.abc import Iterable
from typing import cast

from sim.core.errors import require
from sim.engine.core import EngineCore
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.check_host import check_host_memory
from sim.sglang.check_part import check_part
from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.roles.decode_server import DecodeQueues
from sim.sglang.scheduler.scheduler import SglangScheduler


def check_sglang_memory(engine: EngineCore) -> None:
    """Verify the pages, the prefix cache, and host memory if the server has it.

    Raises:
        InvariantError: an invariant is broken; the message names it.
    """
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
        promised, locked = request.kv.protected_len, request.kv.locked
        has_prefix = locked is not None and locked.end <= promised
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
