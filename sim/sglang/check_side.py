"""Invariants of a part's pool: the window pool, or the states (docs/explanation/invariants.md).

INV-17 is about windows, INV-19 about states.
"""

from collections import Counter
from collections.abc import Iterable

from sim.core.errors import require
from sim.sglang.cache.part import MemoryPart
from sim.sglang.cache.side_cache import SideRadixCache
from sim.sglang.request import SglangRequest


def check_part(part: MemoryPart, requests: Iterable[SglangRequest]) -> None:
    """Verify that every unit of the part's pool is free, in the tree, or one request's.

    Raises:
        InvariantError: an invariant is broken; the message names it.
    """
    pool = part.pool
    if pool is None:
        return
    num_tree = 0 if part.tree is None else _num_in_tree(part.tree)
    num_held = sum(part.num_held(request.kv, request.seq_len) for request in requests)
    total = pool.free_units + num_tree + num_held
    require(
        total == pool.num_units,
        f"of the second pool, {pool.free_units} free + {num_tree} cached + {num_held} held units"
        f" are {total}, not {pool.num_units}",
    )


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
