"""Invariants of the window pool (docs/explanation/invariants.md, INV-17)."""

from collections.abc import Iterable

from sim.core.errors import require
from sim.sglang.cache.window_cache import WindowRadixCache
from sim.sglang.cache.window_manager import WindowKVCacheManager, WindowRequestKV
from sim.sglang.request import SglangRequest


def check_windows(kv: WindowKVCacheManager, requests: Iterable[SglangRequest]) -> None:
    """Verify that the window pool's tokens are free, in the tree, or owned by one request.

    Raises:
        InvariantError: an invariant is broken; the message names it.
    """
    num_tree = 0 if kv.windows is None else _tree_tokens(kv.windows)
    num_owned = 0
    for request in requests:
        own = request.kv
        if own.locked is not None and isinstance(own, WindowRequestKV):
            num_owned += kv.ceil_page(request.seq_len) - own.own_window_from
    pool = kv.window_pool
    total = pool.free_tokens + num_tree + num_owned
    require(
        total == pool.num_tokens,
        f"of the window pool, {pool.free_tokens} free + {num_tree} cached + {num_owned} held tokens"
        f" are {total}, not {pool.num_tokens}",
    )


def _tree_tokens(cache: WindowRadixCache) -> int:
    """Tokens of nodes with KV in the window pool, after checking the counts of the cache."""
    num_locked = num_unlocked = 0
    stack = list(cache.root.children.values())
    while stack:
        node = stack.pop()
        stack.extend(node.children.values())
        state = node.side
        require(state.num_locks <= node.num_locks, "a window is locked where the node is not")
        require(state.holds == (state.newer is not None), "the order of windows is wrong")
        if state.holds and state.num_locks:
            num_locked += node.num_tokens
        elif state.holds:
            num_unlocked += node.num_tokens
    require(num_locked == cache.window_protected_tokens, "protected window tokens are wrong")
    require(num_unlocked == cache.window_evictable_tokens, "evictable window tokens are wrong")
    return num_locked + num_unlocked
