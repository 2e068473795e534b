"""Makes a server's KV memory: the pages, their prefix cache, and the parts that settings ask for.

Parts are host memory, a window pool and a pool of states; most servers have none. Their methods are
called in this order, which is that of SGLang 0.5.23's tree components (`create_unified_radix_cache`
in mem_cache/registry.py): what a request finds in host memory is known before the window or the
state at the end of its prefix is looked at.
"""

from sim.engine.page_pool import PageCounts, PageIds, PagePool
from sim.engine.store import Store
from sim.sglang.cache.host.part import HostPart
from sim.sglang.cache.host.tree import HostTree
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.part import MemoryPart
from sim.sglang.cache.pool_tree import UnitPool
from sim.sglang.cache.settings import HostCacheSettings, StateSettings, WindowSettings
from sim.sglang.cache.states import StatePart, StateTree
from sim.sglang.cache.storage.tier import StorageTier
from sim.sglang.cache.tree.eviction import EVICTION_POLICIES
from sim.sglang.cache.tree.prefix_cache import NoPrefixCache
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.cache.tree.radix_node import LeafQueue
from sim.sglang.cache.window import WindowPart
from sim.sglang.cache.window_tree import WindowTree
from sim.sglang.config import SchedulerConfig, compares_pairs

# A load copies a state twice: for its node, and for the request, which changes it.
_LOADS_OF_STATE = 2


def build_kv_memory(
    config: SchedulerConfig, pool: PagePool, store: Store | None = None
) -> KVCacheManager:
    """The KV memory of a server.

    Args:
        config: the server's settings.
        pool: the pages of layers with full attention.
        store: the store below host memory; None: there is none.
    """
    # A tree with states compares tokens all the same: `is_eagle` in SGLang 0.5.23's
    # mem_cache/unified_cache/unified_tree_core.py.
    pairs = config.states is None and compares_pairs(config.speculative_algorithm)
    tree = None if config.disable_radix_cache else RadixCache(pool, _leaves(config))
    parts: list[MemoryPart] = []
    host = storage = None
    if config.host_cache is not None and tree is not None:
        host = HostTree(tree, config.host_cache, _host_pool(config.host_cache, pool))
    if config.window is not None:
        parts.append(_window_part(config, config.window, tree, host, pairs=pairs))
    if config.states is not None and tree is not None:
        parts.append(_state_part(config, config.states, tree, host))
    if host is not None:
        settings = host.settings.storage
        if settings is not None and store is not None:
            storage = StorageTier(host, settings, store, compares_pairs=pairs)
        parts.insert(0, HostPart(host, storage))
    cache = NoPrefixCache() if tree is None else tree
    return KVCacheManager(pool, cache, parts, compares_pairs=pairs, storage=storage)


def _leaves(config: SchedulerConfig) -> LeafQueue:
    """An empty queue of the eviction policy."""
    leaves: LeafQueue | None = config.own_rule("radix_eviction_policy")
    if leaves is not None:
        return leaves
    make = EVICTION_POLICIES[config.radix_eviction_policy]
    return make(config.pool_tokens, config.radix_eviction_policy_config)


def _host_pool(settings: HostCacheSettings, pool: PagePool) -> PagePool:
    """The pages of host memory; they have ids if the device's pages have ids."""
    kind = PageIds if isinstance(pool, PageIds) else PageCounts
    return kind(settings.capacity_tokens // pool.page_size, pool.page_size)


def _window_part(
    config: SchedulerConfig,
    settings: WindowSettings,
    tree: RadixCache | None,
    host: HostTree | None,
    *,
    pairs: bool,
) -> WindowPart:
    """`pairs`: the cache compares pairs of tokens."""
    pool = UnitPool(settings.pool_tokens)
    windows = None
    if tree is not None:
        windows = WindowTree(tree, pool, settings.window, config.page_size)
        if host is not None:
            num_tokens = host.settings.num_units(pool.num_units, config.page_size)
            host.add_part(windows, num_tokens, 1.0 - host.settings.full_share, 1)
    return WindowPart(
        settings,
        pool,
        windows,
        config.page_size,
        chunk_in_flight=max(config.chunked_prefill_size, 0) if config.overlaps else 0,
        compares_pairs=pairs,
        states=None if tree is None else config.states,
    )


def _state_part(
    config: SchedulerConfig, settings: StateSettings, tree: RadixCache, host: HostTree | None
) -> StatePart:
    states = StateTree(tree, UnitPool(settings.num_states))
    if host is not None:
        num_states = host.settings.num_units(settings.num_states, 1)
        host.add_part(states, num_states, host.settings.state_tokens, _LOADS_OF_STATE)
    return StatePart(
        settings,
        states,
        drafts=config.speculation is not None,
        goes_with_tails=config.window is not None and config.page_size > 1,
    )
