"""What state machines do with any radix cache: they match, lock, unlock and insert.

Symbols stand for pages of equal tokens. Requests keep their nodes as in a server.
"""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, rule

from sim.core.tokens import TokenIds
from sim.engine.page_pool import PageIds
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.cache.tree.radix_node import RadixNode
from tests.support.facts import end_of

Path = tuple[int, ...]

LOCKS: Bundle[tuple[Path, RadixNode]] = Bundle("locks")
FINDS: Bundle[tuple[Path, RadixNode]] = Bundle("finds")

# Symbols as the class of a machine draws them.
symbols_of_class = st.runner().flatmap(lambda machine: machine.symbols)


def prefixes(path: Path) -> set[Path]:
    return {path[: n + 1] for n in range(len(path))}


class CacheMachine(RuleBasedStateMachine):
    """Base class; a derived class makes the cache, and checks what each insertion does.

    Attributes:
        symbols: draws a list of symbols.
        locked: the paths that are locked, each as often as it is.
    """

    page_size = 1
    eviction = "lru"
    symbols: st.SearchStrategy[list[int]]
    pool: PageIds
    cache: RadixCache

    def __init__(self) -> None:
        super().__init__()
        self.locked: list[Path] = []

    def tokens(self, symbols: Path | list[int]) -> TokenIds:
        return np.repeat(np.array(symbols, dtype=np.int64), self.page_size)

    def is_locked(self, prefix: Path) -> bool:
        return any(path[: len(prefix)] == prefix for path in self.locked)

    def inserted(self, symbols: Path, owned_from: int, node: RadixNode, num_cached: int) -> None:
        """Check an insertion of these pages, and note it."""
        raise NotImplementedError

    @rule(find=FINDS, more=symbols_of_class, data=st.data())
    def match_from_a_node_found_earlier_is_the_same(
        self, find: tuple[Path, RadixNode], more: list[int], data: Any
    ) -> None:
        symbols, node = find
        token_ids = self.tokens(symbols + tuple(more))
        limit = data.draw(st.integers(0, len(token_ids)))
        here = self.cache.match(token_ids, limit, node)
        anywhere = self.cache.match(token_ids, limit)
        assert end_of(here) == end_of(anywhere)

    @rule(target=LOCKS, symbols=symbols_of_class)
    def lock(self, symbols: list[int]) -> tuple[Path, RadixNode]:
        token_ids = self.tokens(symbols)
        node = self.cache.touch(self.cache.match(token_ids, len(token_ids)))
        self.cache.lock(node)
        path = tuple(symbols[: node.end // self.page_size])
        self.locked.append(path)
        return path, node

    @rule(held=consumes(LOCKS))
    def unlock(self, held: tuple[Path, RadixNode]) -> None:
        path, node = held
        self.cache.unlock(node)
        self.locked.remove(path)

    def insert_pages(self, symbols: Path, owned_from: int, start: RadixNode | None) -> None:
        token_ids = self.tokens(symbols)
        num_pages = len(symbols) - owned_from
        if num_pages > self.pool.num_free_pages:
            return
        self.pool.reserve(num_pages)
        given = self.pool.take_reserved(num_pages)
        num_free = self.pool.num_free_pages
        node, num_cached = self.cache.insert(token_ids, owned_from * self.page_size, given, start)
        assert node.end == len(token_ids)
        # Tokens beyond `owned_from` that were cached already: their second copy is free again.
        num_doubled = num_cached // self.page_size - owned_from
        assert self.pool.num_free_pages - num_free == max(num_doubled, 0)
        self.inserted(symbols, owned_from, node, num_cached)

    @rule(symbols=symbols_of_class)
    def insert_from_the_root(self, symbols: list[int]) -> None:
        self.insert_pages(tuple(symbols), 0, None)

    @rule(held=LOCKS, more=symbols_of_class)
    def insert_below_a_locked_node(self, held: tuple[Path, RadixNode], more: list[int]) -> None:
        path, node = held
        self.insert_pages(path + tuple(more), len(path), node)
