"""Stands in for a tokenizer: token ids of known number that share prefixes as their texts do."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

import numpy as np

from sim.workload.limits import Int64

# Above every id of a token stream (core.tokens), below those of blocks.
_FIRST_ID = 1 << 61
_ODD = 0x9E3779B97F4A7C15


def text_token_ids(texts: Sequence[str], num_tokens: Int64) -> Iterator[Int64]:
    """Yield the ids of each text, int64, shape [num_tokens[i]].

    A token stands for as many characters as a token of these texts has on average, so two texts
    agree on about as many tokens as they would under their tokenizer. Ids beyond the text's
    characters, and the last one always, are the whole text's own: different texts never have
    equal ids, equal texts of equal length always do.
    """
    num_characters = sum(len(text) for text in texts)
    width = max(1, -(-num_characters // max(1, int(num_tokens.sum()))))
    for text, count in zip(texts, num_tokens.tolist(), strict=True):
        yield _token_ids(text, count, width)


def _token_ids(text: str, num_tokens: int, width: int) -> Int64:
    num_shared = min(len(text) // width, num_tokens - 1)
    characters = np.frombuffer(
        text[: num_shared * width].encode("utf-32-le", "surrogatepass"), "<u4"
    )
    mixed = np.zeros(num_shared, dtype=np.uint64)
    for column in characters.reshape(num_shared, width).astype(np.uint64).T:
        mixed = (mixed + column + np.uint64(1)) * np.uint64(_ODD)
        mixed ^= mixed >> np.uint64(29)
    shared = (mixed >> np.uint64(4)).astype(np.int64) + _FIRST_ID
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=7).digest()
    own = _FIRST_ID + (1 << 60) + int.from_bytes(digest, "little")
    return np.concatenate((shared, np.full(num_tokens - num_shared, own)))
