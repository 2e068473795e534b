"""The invariants that hold between any two steps (docs/invariants.md)."""

from collections import Counter

from sim.core.errors import InvariantError
from sim.core.request import Status
from sim.engine.core import EngineCore
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.radix_node import RadixNode
from sim.sglang.check_host import check_host_tier
from sim.vllm.cache.manager import BlockManager
from sim.vllm.check import check_blocks


def check_engine(engine: EngineCore) -> None:
    """Verify requests, slots, pages and the prefix cache.

    Raises:
        InvariantError: naming what does not hold.
    """
    _check_requests(engine)
    kv = engine.kv
    if isinstance(kv, BlockManager):
        held = {rid: (r.kv, engine.seq_len(r)) for rid, r in engine.requests.items()}
        check_blocks(kv, held)
    elif isinstance(kv, KVCacheManager):
        _check_pages(engine, kv)
        _check_tree(kv)
        if kv.host is not None:
            check_host_tier(kv.host)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise InvariantError(what)


def _check_requests(engine: EngineCore) -> None:
    """Every request that is not over is in exactly one place, and its status says which."""
    scheduler = engine.scheduler
    waiting = {request.rid for request in scheduler.waiting_requests()}
    running = {r.rid for r in scheduler.running.requests if r.status is Status.RUNNING}
    alive = set(engine.requests)
    elsewhere = alive - waiting - running
    _require(not waiting & running, f"waiting and running: {sorted(waiting & running)}")
    _require(waiting | running <= alive, "a request that is over is still queued or running")
    allowed = {request.rid for request in scheduler.requests_elsewhere()}
    for launch in engine.in_flight:
        allowed |= {request.rid for request in [*launch.prefill, *launch.leaving]}
    _require(elsewhere <= allowed, f"nowhere: {sorted(elsewhere - allowed)}")
    for request in scheduler.waiting_requests():
        _require(request.status is Status.WAITING, f"{request.rid} waits as {request.status}")
    for rid in running | elsewhere:
        status = engine.requests[rid].status
        _require(status is Status.RUNNING, f"{rid} runs as {status}")
    num_held = len(alive) - len(waiting)
    _require(
        scheduler.num_slots_used == num_held,
        f"{scheduler.num_slots_used} slots taken by {num_held} requests",
    )


def _check_pages(engine: EngineCore, kv: KVCacheManager) -> None:
    """Every page is free, in the tree, or held by exactly one request."""
    num_tree = kv.cache.evictable_tokens + kv.cache.protected_tokens
    num_owned = sum(
        kv.ceil_page(engine.seq_len(request)) - request.kv.protected_len
        for request in engine.requests.values()
        if request.kv.locked is not None
    )
    total = kv.free_tokens + num_tree + num_owned
    _require(
        total == kv.pool_tokens,
        f"{kv.free_tokens} free + {num_tree} cached + {num_owned} held tokens are {total}, "
        f"not {kv.pool_tokens}",
    )


def _check_tree(kv: KVCacheManager) -> None:
    """Sizes add up, and whatever counts as evictable can be evicted."""
    tokens: Counter[bool] = Counter()
    stack = list(kv.cache.root.children.values())
    while stack:
        node = stack.pop()
        tokens[node.num_locks > 0] += len(node.token_ids)
        _check_node(node, kv.page_size)
        stack.extend(node.children.values())
    _require(tokens[True] == kv.cache.protected_tokens, "protected tokens miscounted")
    _require(tokens[False] == kv.cache.evictable_tokens, "evictable tokens miscounted")


def _check_node(node: RadixNode, page_size: int) -> None:
    parent = node.parent
    if parent is None:
        raise InvariantError("a node below the root has no parent")
    _require(node.alive, "an evicted node is still in the tree")
    _require(len(node.token_ids) == len(node.pages) * page_size > 0, "a node is not whole pages")
    _require(node.end == parent.end + len(node.token_ids), "a node's end is off")
    _require(node.num_locks <= parent.num_locks or not parent.parent, "a lock skips an ancestor")
    _require(
        node.num_locks > 0 or bool(node.children) or node.queued,
        "an unlocked leaf cannot be found by eviction",
    )
