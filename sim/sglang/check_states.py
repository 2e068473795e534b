"""Invariants of the pool of states (docs/explanation/invariants.md, INV-19)."""

from collections.abc import Iterable

from sim.core.errors import require
from sim.sglang.cache.state_cache import StateRadixCache
from sim.sglang.cache.state_manager import StateKVCacheManager, StateRequestKV
from sim.sglang.request import SglangRequest


def check_states(kv: StateKVCacheManager, requests: Iterable[SglangRequest]) -> None:
    """Verify that every state is free, in the tree, or one request's.

    Raises:
        InvariantError: an invariant is broken; the message names it.
    """
    num_held = 0
    for request in requests:
        own = request.kv
        if isinstance(own, StateRequestKV):
            num_held += own.num_states
            runs = own.locked is not None
            needed = 1 + kv.settings.num_tracked if runs else 0
            require(own.num_states == needed, "a request has too many or too few states")
    free, num_tree = kv.states.num_free_states, _tree_states(kv.states)
    total = free + num_tree + num_held
    require(
        total == kv.settings.num_states,
        f"{free} free + {num_tree} cached + {num_held} held states are {total}, not"
        f" {kv.settings.num_states}",
    )


def _tree_states(cache: StateRadixCache) -> int:
    """Nodes with a state, after checking the counts of the cache."""
    num_locked = num_unlocked = 0
    stack = list(cache.root.children.values())
    while stack:
        node = stack.pop()
        stack.extend(node.children.values())
        state = node.side
        require(state.num_locks <= node.num_locks, "a state is locked where its node is not")
        require(state.holds == (state.newer is not None), "the order of states is wrong")
        num_locked += state.holds and state.num_locks > 0
        num_unlocked += state.holds and not state.num_locks
    require(num_locked == cache.num_protected_states, "the count of locked states is wrong")
    require(num_unlocked == cache.num_evictable_states, "the count of evictable states is wrong")
    return num_locked + num_unlocked
