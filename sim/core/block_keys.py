"""Keys of the blocks of a prompt: equal keys mean equal prefixes, the block included."""

import numpy as np
from numpy.typing import NDArray

from sim.core.tokens import GOLDEN_RATIO, TokenIds

BlockKeyArray = NDArray[np.uint64]

_GOLDEN_RATIO = np.uint64(GOLDEN_RATIO)
_ODD = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


class BlockKeys:
    """Cuts prompts into blocks of `block_tokens` tokens; a last block that is not full has no key.

    Key i is a hash of *all* tokens up to the end of block i. If key i of two prompts is equal,
    their tokens up to there are equal, but for a chance of 1 in 2**64. Keys are the same in every
    process, because the hash uses no random seed.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._weights = _mix(np.arange(block_tokens, dtype=np.uint64)) | np.uint64(1)

    def of(self, token_ids: TokenIds, num_before: int = 0, key_before: int = 0) -> BlockKeyArray:
        """The keys of the blocks of `token_ids`; uint64, shape [len(token_ids) // block_tokens].

        `num_before`: blocks of the prompt before these tokens; `key_before`: the last one's key.
        """
        num_blocks = len(token_ids) // self._block_tokens
        tokens = token_ids[: num_blocks * self._block_tokens].view(np.uint64) * _ODD
        # Mix high bits into low ones. Else token ids that differ only in high bits would give sums
        # that differ only in high bits.
        tokens ^= tokens >> _HALF
        blocks = tokens.reshape(num_blocks, self._block_tokens) @ self._weights
        indices = np.arange(num_before, num_before + num_blocks, dtype=np.uint64)
        keys: BlockKeyArray = np.cumsum(_mix(blocks + indices * _GOLDEN_RATIO))
        keys += np.uint64(key_before)
        return keys


def _mix(x: BlockKeyArray) -> BlockKeyArray:
    """A one-to-one mix: every input bit affects every output bit."""
    mixed = x + _GOLDEN_RATIO
    for _ in range(2):
        mixed ^= mixed >> _HALF
        mixed *= _ODD
    mixed ^= mixed >> _HALF
    return mixed
