"""Token ids for prompts whose text and number of tokens are known, and for conversations."""

import json
from collections import defaultdict
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


def prompt_text(body: object) -> str:
    """The prompt of a request's body as one text; the body may be JSON text itself."""
    if isinstance(body, str) and body.lstrip().startswith("{"):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            return ""
    if isinstance(body, dict):
        for key in ("body", "messages", "prompt", "input", "inputs", "text_input"):
            if body.get(key):
                return prompt_text(body[key])
    if isinstance(body, list) and body:
        contents = [each.get("content") if isinstance(each, dict) else each for each in body]
        if all(isinstance(each, str) for each in contents):
            return "\n".join(map(str, contents))
    return body if isinstance(body, str) else json.dumps(body, default=str) if body else ""


def only_conversations(
    requests: Sequence[ImportedRequest], turns: Sequence[int]
) -> list[ImportedRequest]:
    """Keep the session of requests that are turns of a conversation; the others have none.

    Args:
        requests: each with a session.
        turns: the number of each request's turn, from 0.
    """
    talks = {request.session for request, turn in zip(requests, turns, strict=True) if turn}
    return [
        request if request.session in talks else replace(request, session="")
        for request in requests
    ]


def with_linked_turns(requests: Sequence[ImportedRequest]) -> tuple[list[ImportedRequest], int]:
    """Let each later turn of a conversation begin with the turn before and its answer.

    A conversation is the requests of one session, in order of arrival. A prompt that is shorter
    than the one before is not linked to it: its client counts new tokens alone, or has started
    anew.

    Returns:
        The requests, and how many later turns were linked.
    """
    turns = defaultdict(list)
    for place in sorted(range(len(requests)), key=lambda place: requests[place].arrival_ns):
        if requests[place].session and requests[place].has_lengths:
            turns[requests[place].session].append(place)
    found, num_linked, stream = list(requests), 0, 0
    for places in turns.values():
        if len(places) < 2:
            continue
        before = 0
        for turn, place in enumerate(places):
            prompt, output = requests[place].prompt_tokens or 0, requests[place].output_tokens or 0
            if prompt < before or not turn:
                stream += 1
            else:
                num_linked += 1
            # Below 0, so that no id is one of a text; each stream has ids of its own.
            ids = np.arange(prompt + output, dtype=np.int64) - (stream << 32)
            found[place] = replace(
                found[place], known=KnownTokens(ids[:prompt]), answer=ids[prompt:]
            )
            before = prompt
    return found, num_linked
