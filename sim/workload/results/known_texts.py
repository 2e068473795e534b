"""Prompts of which the text and the number of tokens are known."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sim.workload.results.model import ImportedRequest, KnownTokens
from sim.workload.traces.text_tokens import text_token_ids


def with_known_texts(
    requests: Sequence[ImportedRequest], texts: Sequence[str | None]
) -> list[ImportedRequest]:
    """Add stand-in tokens to requests; those without text or length stay as they are.

    There is no tokenizer: `text_token_ids` says how texts become tokens.
    """
    has_text = [
        bool(text) and bool(request.prompt_tokens)
        for text, request in zip(texts, requests, strict=True)
    ]
    chosen = [text for text, has in zip(texts, has_text, strict=True) if has and text is not None]
    num_tokens = [
        request.prompt_tokens for request, has in zip(requests, has_text, strict=True) if has
    ]
    made = iter(text_token_ids(chosen, np.array(num_tokens, dtype=np.int64)))
    return [
        replace(request, known=KnownTokens(next(made))) if has else request
        for request, has in zip(requests, has_text, strict=True)
    ]
