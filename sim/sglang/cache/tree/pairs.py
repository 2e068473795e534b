"""The prefix cache of a server whose drafter reads the model's hidden states (EAGLE, MTP).

Such a drafter computes its KV of a token from the token after it. So cached KV of a token fits only
where the next token is the same, too, and the tree compares pairs of neighbouring tokens: n tokens
are n - 1 pairs. Their last token is computed anew even if its KV is there.

Rule 28 of docs/explanation/speculation.md. SGLang 0.5.23: `RadixKey.maybe_to_bigram_view` in
mem_cache/radix_cache.py, and `is_eagle` in mem_cache/kv_cache_builder.py.

Example: a prompt of the tokens a, b, c, d is cached as the pairs ab, bc, cd, with the KV of a, b
and c. A prompt that begins with a, b, x finds the pair ab: the KV of one token.
"""

import numpy as np

from sim.core.tokens import GOLDEN_RATIO, LazyTokens, TokenIds, TokenSequence, finalise, kept_part

_GOLDEN_RATIO = np.uint64(GOLDEN_RATIO)


def pairs_of(token_ids: TokenIds) -> TokenIds:
    """A number for each pair of neighbouring tokens; two pairs share one in 2**64 cases.

    Args:
        token_ids: int64, shape [num_pairs + 1].

    Returns:
        int64, shape [num_pairs].
    """
    tokens = token_ids.view(np.uint64)
    firsts = finalise(tokens[:-1] * _GOLDEN_RATIO)
    firsts += tokens[1:]
    return finalise(firsts).view(np.int64)


class Pairs(LazyTokens):
    """The pairs of a sequence of tokens."""

    __slots__ = ("_tokens",)

    def __init__(self, tokens: TokenSequence) -> None:
        self._tokens = tokens

    def __len__(self) -> int:
        return max(len(self._tokens) - 1, 0)

    def __getitem__(self, part: slice, /) -> TokenIds:
        start, stop, _ = part.indices(len(self))
        return pairs_of(self._tokens[start : max(start, stop) + 1])

    def part(self, start: int, stop: int) -> TokenSequence:
        return Pairs(kept_part(self._tokens, start, stop + 1))
