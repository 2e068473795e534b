"""What steps say of each pool of KV or states, and what an idle server checks of it."""

from typing import Any


class PagesOfPool:
    """The pool of all layers, or of the layers without a window."""

    def __init__(self, server: Any) -> None:
        self.server = server

    def fields(self) -> dict[str, int]:
        """What a step's row says, in tokens."""
        free, evictable = self.counts()
        tree = self.server.tree_cache
        return {
            "free": free,
            "evictable": evictable,
            "protected": int(tree.protected_size()),
            "used": self.size() - free - evictable,
        }

    def counts(self) -> tuple[int, int]:
        """What is free, and what could be evicted."""
        pool = self.server.token_to_kv_pool_allocator
        return int(pool.available_size()), int(self.server.tree_cache.evictable_size())

    def size(self) -> int:
        return int(self.server.max_total_num_tokens)

    def share_used(self) -> float:
        """As in SGLang's `PoolStats`."""
        return (self.size() - sum(self.counts())) / self.size()

    def check_idle(self) -> None:
        """Raises `RuntimeError` if something is held though no request is there."""
        left = sum(self.counts())
        if left != self.size():
            raise RuntimeError(f"leak at idle: {left} of {self.size()} ({type(self).__name__})")


class FullPages(PagesOfPool):
    """Of a model with windows, the pool of the layers without one."""

    def counts(self) -> tuple[int, int]:
        pool = self.server.token_to_kv_pool_allocator
        return int(pool.full_available_size()), int(self.server.tree_cache.full_evictable_size())


class WindowPages(PagesOfPool):
    """The pool of the layers with a window."""

    def fields(self) -> dict[str, int]:
        free, evictable = self.counts()
        return {"window_free": free, "window_evictable": evictable}

    def counts(self) -> tuple[int, int]:
        pool = self.server.token_to_kv_pool_allocator
        return int(pool.swa_available_size()), int(self.server.tree_cache.swa_evictable_size())

    def size(self) -> int:
        return int(self.server.token_to_kv_pool_allocator.size_swa)


class States(PagesOfPool):
    """The pool of states."""

    def fields(self) -> dict[str, int]:
        free, evictable = self.counts()
        return {"states_free": free, "states_evictable": evictable}

    def counts(self) -> tuple[int, int]:
        pool = self.server.req_to_token_pool
        free = int(pool.mamba_allocator.available_size())
        return free, int(self.server.tree_cache.mamba_evictable_size())

    def size(self) -> int:
        return int(self.server.req_to_token_pool.mamba_pool.size)


def pools_of(server: Any) -> list[PagesOfPool]:
    """All pools of a server."""
    pools = (
        [FullPages(server), WindowPages(server)] if server.is_hybrid_swa else [PagesOfPool(server)]
    )
    return pools + ([States(server)] if server.is_hybrid_ssm else [])
