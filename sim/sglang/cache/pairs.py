"""The prefix cache of a server whose drafter reads the model's hidden states (EAGLE, MTP).

Such a drafter computes its KV of a token from the token after it. So cached KV of a token fits only
where the next token is the same, too, and the tree compares pairs of neighbouring tokens: n tokens
are n - 1 pairs. Their last token is computed anew even if its KV is there.

Rule 28 of docs/explanation/speculation.md. SGLang 0.5.23: `RadixKey.maybe_to_bigram_view` in mem_cache/radix_cache.py, and `is_eagle` in
mem_cache/kv_cache_builder.py.

Example: a prompt of the tokens a, b, c, d is cached as the pairs ab, bc, cd, with the KV of a, b
and c. A prompt that begins with a, b, x finds the pair ab: the KV of one token.
"""

import numpy as np

from sim.core.splitmix import finalise
from sim.core.tokens import LazyTokens, TokenIds, TokenSequence, kept_part
from sim.sglang.cache.manager import KVCacheManager, RequestKV

_ODD = np.uint64(0x9E3779B97F4A7C15)


def pairs_of(token_ids: TokenIds) -> TokenIds:
    """A number for each pair of neighbouring tokens; two pairs share one in 2**64 cases.

    Args:
        token_ids: int64, shape [num_pairs + 1].

    Returns:
        int64, shape [num_pairs].
    """
    tokens = token_ids.view(np.uint64)
    firsts = finalise(tokens[:-1] * _ODD)
    firsts += tokens[1:]
    return finalise(firsts).view(np.int64)


class Pairs(LazyTokens):
    """The first `num_pairs` pairs of a sequence of tokens."""

    __slots__ = ("_num_pairs", "_tokens")

    def __init__(self, tokens: TokenSequence, num_pairs: int) -> None:
        """`tokens` has at least `num_pairs` + 1 tokens."""
        self._tokens = tokens
        self._num_pairs = num_pairs

    def __len__(self) -> int:
        return self._num_pairs

    def __getitem__(self, part: slice, /) -> TokenIds:
        start, stop, _ = part.indices(self._num_pairs)
        return pairs_of(self._tokens[start : max(start, stop) + 1])

    def part(self, start: int, stop: int) -> TokenSequence:
        return Pairs(kept_part(self._tokens, start, stop + 1), stop - start)


class PairKVCacheManager(KVCacheManager):
    """The same memory, with a cache that compares pairs."""

    def find_prefix(self, kv: RequestKV, num_tokens: int, limit: int) -> int:
        return super().find_prefix(kv, max(num_tokens - 1, 0), max(limit - 1, 0))

    def _keys(self, kv: RequestKV, num_keys: int) -> TokenSequence:
        return Pairs(kv.token_ids(num_keys + 1), num_keys)

    def checkpoint(
        self,
        kv: RequestKV,
        num_tokens: int,
        *,
        prompt_len: int,
        seq_len: int,
        is_finished: bool = False,
    ) -> None:
        super().checkpoint(
            kv,
            max(num_tokens - 1, 0),
            prompt_len=max(prompt_len - 1, 0),
            seq_len=seq_len,
            is_finished=is_finished,
        )
