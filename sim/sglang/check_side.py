"""Invariants of the second pool: the window pool, or the states (docs/explanation/invariants.md).

INV-17 is about windows, INV-19 about states.
"""

from collections import Counter
from collections.abc import Iterable

from sim.core.errors import require
from sim.sglang.cache.side_cache import SideRadixCache
from sim.sglang.cache.state_manager import StateKVCacheManager, StateRequestKV
from sim.sglang.cache.window_manager import WindowKVCacheManager, WindowRequestKV
from sim.sglang.request import SglangRequest


def check_side_pool(
    kv: WindowKVCacheManager | StateKVCacheManager, requests: Iterable[SglangRequest]
) -> None:
    """Verify that every unit of the second pool is free, in the tree, or one request's.

    Raises:
        InvariantError: an invariant is broken; the message names it.
    """
    if isinstance(kv, WindowKVCacheManager):
        pool = kv.window_pool
        num_tree = 0 if kv.windows is None else _num_in_tree(kv.windows)
        num_held = sum(_window_tokens(kv, request) for request in requests)
    else:
        pool, num_tree = kv.state_pool, _num_in_tree(kv.states)
        num_held = sum(_states(kv, request) for request in requests)
    total = pool.free_units + num_tree + num_held
    require(
        total == pool.num_units,
        f"of the second pool, {pool.free_units} free + {num_tree} cached + {num_held} held units"
        f" are {total}, not {pool.num_units}",
    )


def _window_tokens(kv: WindowKVCacheManager, request: SglangRequest) -> int:
    """What a request has in the window pool."""
    own = request.kv
    if own.locked is None or not isinstance(own, WindowRequestKV):
        return 0
    return kv.ceil_page(request.seq_len) - own.own_window_from


def _states(kv: StateKVCacheManager, request: SglangRequest) -> int:
    """How many states a request has; running ones have all that they need, others none."""
    own = request.kv
    if not isinstance(own, StateRequestKV):
        return 0
    needed = 0 if own.locked is None else 1 + kv.settings.num_tracked
    require(own.num_states == needed, "a request has too many or too few states")
    return own.num_states


def _num_in_tree(cache: SideRadixCache) -> int:
    """Units that nodes hold, after checking the counts of the cache."""
    num_units: Counter[bool] = Counter()
    for node in cache.root.below():
        state = node.side
        require(state.num_locks <= node.num_locks, "a node is locked in the second pool alone")
        require(state.holds == (state.newer is not None), "the order of uses is wrong")
        if state.holds:
            num_units[state.num_locks > 0] += cache.num_units(node)
    require(num_units[True] == cache.side_protected, "the count of protected units is wrong")
    require(num_units[False] == cache.side_evictable, "the count of evictable units is wrong")
    return num_units.total()
