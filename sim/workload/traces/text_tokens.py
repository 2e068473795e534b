"""Turns texts into token ids: with a tokenizer, or with ids that share prefixes as the texts do."""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sim.core.arrays import Int64
from sim.core.errors import InputError, shorten
from sim.core.files import located
from sim.core.packed import read_text
from sim.extras import how_to_install
from sim.workload.config import DEFAULT_CHARACTERS_PER_TOKEN, TraceConfig
from sim.workload.traces.files import TOKENIZER_FILE

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ToIds = Callable[[str], Int64]

# Above all ids of token streams (sim.core.tokens), below those of blocks.
_FIRST_ID = 1 << 61
_ODD = 0x9E3779B97F4A7C15
# Characters that are hashed at once.
_BLOCK = 1 << 16


def text_token_ids(texts: Sequence[str], num_tokens: Int64) -> Iterator[Int64]:
    """Yield the ids of each text, int64, shape [num_tokens[i]].

    Each id stands for the same number of characters: the mean characters per token of these texts.
    So two texts share about the same number of tokens as with their real tokenizer. The last id,
    and ids beyond the end of the text, are a hash of the whole text. So only equal texts with equal
    numbers of tokens have equal ids.
    """
    num_characters = sum(len(text) for text in texts)
    # Each id stands for at least one character.
    total = min(int(num_tokens.sum()), num_characters)
    for text, count in zip(texts, num_tokens.tolist(), strict=True):
        num_shared = min(len(text) * total // num_characters, count - 1)
        ends = np.arange(1, num_shared + 1) * num_characters // total
        yield np.concatenate((_shared_ids(text, ends), np.full(count - num_shared, _own_id(text))))


def estimated_token_ids(text: str, characters_per_token: float) -> Int64:
    """The ids of a text with this many characters for each token, int64, at least one.

    Texts share ids where their beginnings are equal; the last id is a hash of the whole text.
    """
    count = max(1, round(len(text) / characters_per_token))
    if count == 1:
        return np.array([_own_id(text)])
    ends = (np.arange(1, count) * characters_per_token).astype(np.int64)
    shared = _shared_ids(text, np.clip(ends, 1, max(len(text), 1)))
    return np.append(shared, _own_id(text))


def _shared_ids(text: str, ends: Int64) -> Int64:
    """An id for each end: a hash of the text up to that end, because only prefixes are compared.

    `ends` ascend. The text is read in blocks: with all at once, each character takes 40 bytes.
    """
    sums: NDArray[np.uint64] = np.empty(len(ends), dtype=np.uint64)
    weight: NDArray[np.uint64] = np.ones(1, dtype=np.uint64)
    total: NDArray[np.uint64] = np.zeros(1, dtype=np.uint64)
    for first in range(0, len(text), _BLOCK):
        block = text[first : first + _BLOCK].encode("utf-32-le", "surrogatepass")
        characters = np.frombuffer(block, "<u4").astype(np.uint64)
        odds = np.full(len(characters), _ODD, dtype=np.uint64)
        weights = weight * np.cumprod(odds, dtype=np.uint64)
        until = total + np.cumsum((characters + np.uint64(1)) * weights)
        begin, end = np.searchsorted(ends, (first, first + len(characters)), side="right")
        sums[begin:end] = until[ends[begin:end] - first - 1]
        weight, total = weights[-1:], until[-1:]
    sums ^= sums >> np.uint64(29)
    sums *= np.uint64(_ODD)
    return (sums >> np.uint64(4)).astype(np.int64) + _FIRST_ID


def _own_id(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=7).digest()
    return _FIRST_ID + (1 << 60) + int.from_bytes(digest, "little")


def text_counter(config: TraceConfig, base_dir: Path) -> tuple[ToIds, str]:
    """What makes the ids of a text, and a note that says how they are counted."""
    if config.tokenizer is not None:
        to_ids = _tokenizer(located(base_dir, config.tokenizer))
        return to_ids, f"tokens are those of {config.tokenizer}"
    ratio = config.characters_per_token or DEFAULT_CHARACTERS_PER_TOKEN
    note = f"token counts are estimates: {ratio:g} characters of text for each token"
    return lambda text: estimated_token_ids(text, ratio), note


def _tokenizer(path: Path) -> ToIds:
    tokenizer = load_tokenizer(path, "set characters_per_token")

    def to_ids(text: str) -> Int64:
        encoded = tokenizer.encode(text, add_special_tokens=False)
        return np.array(encoded.ids, dtype=np.int64)

    return to_ids


def load_tokenizer(path: Path, instead: str) -> "Tokenizer":
    """Read a tokenizer, from a file or from the folder of a model.

    `instead` is what a user may do without the package that reads it.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        reason = f"needs the package tokenizers: {how_to_install('tokenizer')}"
        raise InputError(f"{path}: {reason} (or {instead})") from None
    file = path / TOKENIZER_FILE if path.is_dir() else path
    text = read_text(file)
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:
        raise InputError(f"{file}: is no tokenizer: {shorten(str(error))}") from None
    # A tokenizer's file may ask for a length that all texts get.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
