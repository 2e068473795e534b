"""Token ids for prompts whose text and number of tokens are known."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sim.workload.results.model import ImportedRequest, KnownTokens
from sim.workload.traces.text_tokens import text_token_ids


def with_known_texts(
    requests: Sequence[ImportedRequest], texts: Sequence[str | None]
) -> list[ImportedRequest]:
    """Add stand-in tokens to the requests that have a text and a length.

    There is no tokenizer: `text_token_ids` says how texts become tokens.
    """
    found = list(requests)
    with_text = {
        i: (text, request.prompt_tokens)
        for i, (text, request) in enumerate(zip(texts, requests, strict=True))
        if text and request.prompt_tokens
    }
    known_texts = [text for text, _ in with_text.values()]
    num_tokens = np.array([count for _, count in with_text.values()], dtype=np.int64)
    for i, ids in zip(with_text, text_token_ids(known_texts, num_tokens), strict=True):
        found[i] = replace(found[i], known=KnownTokens(ids))
    return found
