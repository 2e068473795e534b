"""Invariants of a part's pool: the window pool, or the states (docs/explanation/invariants.md).

INV-17 is about windows, INV-19 about states.
"""

from collections import Counter
from collections.abc import Iterable

from sim.core.errors import require
from sim.sglang.cache.part import MemoryPart
from sim.sglang.cache.pool_tree import PoolTree
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
