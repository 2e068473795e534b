"""The radix cache's events: which pages it stored, and which it evicted.

SGLang 0.5.23 records one BlockStored for each page of a new node, and one BlockRemoved with all
pages of an evicted node (`KVCacheEventRecorder` of mem_cache/events.py). Of a model with a second
pool this is the KV of the layers with full attention.
"""

import numpy as np

from sim.core.block_keys import BlockKeys
from sim.core.tokens import TokenIds, TokenSequence
from sim.engine.page_pool import CacheListener
from sim.sglang.cache.tree.radix_node import RadixNode


class TreeEvents:
    """Tells a listener of nodes that come to the device or leave it."""

    def __init__(self, listener: CacheListener, page_size: int) -> None:
        self._listener = listener
        self._page_size = page_size
        self._keys = BlockKeys(page_size)

    def stored(self, token_ids: TokenSequence, start: int) -> None:
        """A sequence is in the tree now; of its first `start` tokens all pages were before."""
        if start < len(token_ids):
            self._listener.stored(self._keys_from(token_ids[:], start))

    def brought_back(self, node: RadixNode, start: int) -> None:
        """The pages of the path to `node` behind its first `start` tokens are on the device now."""
        self._listener.stored(self._keys_from(_path_tokens(node), start))

    def removed(self, node: RadixNode) -> None:
        """The pages of a node leave the device; its tokens are still known."""
        tokens = _path_tokens(node)
        self._listener.removed(self._keys_from(tokens, len(tokens) - node.num_tokens))

    def _keys_from(self, token_ids: TokenIds, start: int) -> list[int]:
        keys: list[int] = self._keys.of(token_ids)[start // self._page_size :].tolist()
        return keys


def _path_tokens(node: RadixNode) -> TokenIds:
    """All tokens from the root to the end of a node."""
    parts = []
    current: RadixNode | None = node
    while current is not None:
        parts.append(current.token_ids[:])
        current = current.parent
    return np.concatenate(parts[::-1])
