"""What state machines do with any radix cache: they match, lock, unlock and insert.

Symbols stand for pages of tokens. A machine tells the cache the places of all tokens in streams, or
their ids, or now one and now the other. Requests keep their nodes as in a server.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, rule

from sim.core.tokens import PromptPart, SegmentPrompt, TokenSequence, stream_token_id
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
        self._ids_every = self._num_made = 0
        self._symbol_of = {stream_token_id(symbol, 0): symbol for symbol in range(2)}

    @initialize(every=st.sampled_from([0, 1, 5]))
    def choose_how_tokens_are_told(self, every: int) -> None:
        """All by their places, all by their ids, or every fifth sequence by its ids."""
        self._ids_every = every

    def tokens(self, symbols: Path | list[int], num_extra: int = 0) -> TokenSequence:
        """The tokens of pages, and `num_extra` others.

        A page of symbol 0 is one piece of a stream, one of symbol 1 has two pieces.
        """
        segments: list[tuple[int, int]] = []
        for symbol in symbols:
            segments += [(0, self.page_size)] if symbol == 0 else [(1, 1), (0, self.page_size - 1)]
        prompt = SegmentPrompt((*segments, (7, num_extra)))
        self._num_made += 1
        if self._ids_every and self._num_made % self._ids_every == 0:
            return prompt.token_ids()
        return PromptPart(prompt, 0, len(prompt))

    def path_below(self, above: Path, node: RadixNode) -> Path:
        """The path to the end of a node, whose parent's path is `above`."""
        first_tokens = node.token_ids[:][:: self.page_size].tolist()
        return above + tuple(self._symbol_of[token] for token in first_tokens)

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

    @rule(target=LOCKS, held=consumes(LOCKS), more=symbols_of_class, is_below=st.booleans())
    def move_a_lock(
        self, held: tuple[Path, RadixNode], more: list[int], *, is_below: bool
    ) -> tuple[Path, RadixNode]:
        """To the longest cached prefix of other tokens, which may continue the locked ones."""
        path, node = held
        symbols = (path if is_below else ()) + tuple(more)
        token_ids = self.tokens(symbols)
        end = self.cache.touch(self.cache.match(token_ids, len(token_ids)))
        self.cache.move_lock(node, end)
        self.locked.remove(path)
        path = symbols[: end.end // self.page_size]
        self.locked.append(path)
        return path, end

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
