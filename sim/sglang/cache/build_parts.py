"""Makes the parts of a server's KV memory: host memory, a window pool, a pool of states.

They are told in this order, which is that of SGLang 0.5.23's tree components
(`create_unified_radix_cache` in mem_cache/registry.py): what a request finds in host memory is
known before the window or the state at the end of its prefix is looked at.
"""

from sim.engine.page_pool import PageCounts, PageIds, PagePool
from sim.sglang.cache.host.part import HostPart
from sim.sglang.cache.host.tree import HostTree
from sim.sglang.cache.part import MemoryPart
from sim.sglang.cache.pool_tree import UnitPool
from sim.sglang.cache.settings import HostCacheSettings
from sim.sglang.cache.states import StatePart, StateTree
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.cache.window.part import WindowPart
from sim.sglang.cache.window.tree import WindowTree
from sim.sglang.config import SchedulerConfig

# A load copies a state twice: for its node, and for the request, which changes it.
_LOADS_OF_STATE = 2


def build_parts(
    config: SchedulerConfig,
    pool: PagePool,
    tree: RadixCache | None,
    *,
    compares_pairs: bool,
) -> list[MemoryPart]:
    """The parts that a server's settings ask for; most servers have none.

    Args:
        config: the settings.
        pool: the pages of layers with full attention.
        tree: the prefix cache, still empty; None: there is none.
        compares_pairs: the cache compares pairs of tokens (`sim.sglang.cache.tree.pairs`).
    """
    parts: list[MemoryPart] = []
    host = None
    if config.host_cache is not None and tree is not None:
        host = HostTree(tree, config.host_cache, _host_pool(config.host_cache, pool))
        parts.append(HostPart(host))
    if config.window is not None:
        window_pool = UnitPool(config.window.pool_tokens)
        windows = None
        if tree is not None:
            windows = WindowTree(tree, window_pool, config.window.window, pool.page_size)
            if host is not None:
                num_tokens = host.settings.num_units(window_pool.num_units, pool.page_size)
                host.add_part(windows, num_tokens, 1.0 - host.settings.full_share, 1)
        parts.append(
            WindowPart(
                config.window,
                window_pool,
                windows,
                pool.page_size,
                chunk_in_flight=max(config.chunked_prefill_size, 0) if config.overlaps else 0,
                compares_pairs=compares_pairs,
                states=None if tree is None else config.states,
            )
        )
    if config.states is not None and tree is not None:
        states = StateTree(tree, UnitPool(config.states.num_states))
        if host is not None:
            num_states = host.settings.num_units(config.states.num_states, 1)
            host.add_part(states, num_states, host.settings.state_tokens, _LOADS_OF_STATE)
        parts.append(
            StatePart(
                config.states,
                states,
                drafts=config.speculation is not None,
                goes_with_tails=config.window is not None and config.page_size > 1,
            )
        )
    return parts


def _host_pool(settings: HostCacheSettings, pool: PagePool) -> PagePool:
    """The pages of host memory; they have ids if the device's pages have ids."""
    kind = PageIds if isinstance(pool, PageIds) else PageCounts
    return kind(settings.capacity_tokens // pool.page_size, pool.page_size)
