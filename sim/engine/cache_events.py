"""What a prefix cache tells of its blocks: the events BlockStored and BlockRemoved of real engines.

SGLang 0.5.23 defines them in disaggregation/kv_events.py, vLLM 0.33.0 in distributed/kv_events.py.
A block is a page of SGLang's, a block of vLLM's. It is named by a key that stands for all tokens up
to its end (`sim.core.block_keys`).
"""

from collections.abc import Callable
from typing import Protocol

from sim.core.tokens import TokenIds

# Returns the keys of a prompt's full blocks as a cache makes them, one for each block.
KeysOf = Callable[[TokenIds], list[int]]


class CacheListener(Protocol):
    """Is told what a prefix cache on the device holds; at first it holds nothing."""

    def stored(self, keys: list[int]) -> None:
        """Blocks with these keys, none of which the cache held, are in it now."""

    def removed(self, keys: list[int]) -> None:
        """The cache holds the blocks with these keys no more."""
