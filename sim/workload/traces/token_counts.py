"""Turns texts into token ids: with a tokenizer, or by a number of characters for each token."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sim.core.arrays import Int64
from sim.core.errors import InputError
from sim.core.files import located
from sim.core.messages import shorten
from sim.core.packed import read_text
from sim.extras import how_to_install
from sim.workload.traces.config import DEFAULT_CHARACTERS_PER_TOKEN, TraceConfig
from sim.workload.traces.conversations import ToIds
from sim.workload.traces.folder import TOKENIZER_FILE
from sim.workload.traces.text_tokens import estimated_token_ids

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def text_counter(config: TraceConfig, base_dir: Path) -> tuple[ToIds, str]:
    """What makes the ids of a text, and a note that says how they are counted.

    Raises:
        InputError: the tokenizer cannot be read, or the package that reads it is not installed.
    """
    if config.tokenizer is not None:
        return _tokenizer(
            located(base_dir, config.tokenizer)
        ), f"tokens are those of {config.tokenizer}"
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
    """Read a tokenizer.

    Args:
        path: a file, or the folder of a model.
        instead: what a user may do without the package that reads it.

    Raises:
        InputError: the file cannot be read, or the package is not installed.
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
