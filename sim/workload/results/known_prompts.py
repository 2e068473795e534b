"""Prompts of known tokens: ids for texts and conversations, and streams that share prefixes."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sim.core.arrays import Int64
from sim.core.errors import InputError
from sim.workload.results.model import ImportedRequest, PromptIds
from sim.workload.rng import MAX_STREAMS
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
        found[i] = replace(found[i], prompt_ids=PromptIds(ids))
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

    `turns` has the number of each request's turn in its session, from 0.
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
    again. Also returns how many later turns were linked.
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
                found[place], prompt_ids=PromptIds(ids[:prompt]), answer=ids[prompt:]
            )
            before = prompt
    return found, num_linked


Segment = tuple[int, int]


@dataclass(slots=True, eq=False)
class _Stream:
    """A token stream: the ids that it stands for, and the streams that branch off.

    `followers` has them by offset, the number of ids before the branch, and then by first id.
    """

    seed: int
    ids: Int64
    followers: dict[int, dict[int, "_Stream"]] = field(default_factory=dict)

    def follower(self, offset: int, first: int) -> "_Stream | None":
        return self.followers.get(offset, {}).get(first)


class PrefixStreams:
    """Builds prompts of token streams. Two prompts share exactly the prefix that their ids share.

    A workload file with these segments does not contain the tokens themselves. Requests are added
    in order. If the tokens of an answer are known, later prompts that contain the answer share its
    stream.
    """

    def __init__(self, unit: int = 1) -> None:
        """Take the number of tokens that each id stands for."""
        self._unit = unit
        self._next_seed = 0
        self._root = _Stream(-1, np.empty(0, dtype=np.int64))

    def new_seed(self) -> int:
        """The seed of a stream that is not used elsewhere."""
        seed = self._next_seed
        if seed == MAX_STREAMS:
            raise InputError("needs more than 2**32 different texts")
        self._next_seed += 1
        return seed

    def add(
        self, known: Int64, num_tokens: int, answer: Int64 | None = None
    ) -> tuple[list[Segment], int]:
        """Build the prompt of the next request.

        `known` are the ids of its beginning, and `answer` those of its output, if an id is one
        token and all of them are known. Returns the prompt's segments, and the seed of the stream
        that is its answer.
        """
        stream, offset, path = self._followed(known)
        segments = [(seed, length * self._unit) for seed, length in path]
        missing = num_tokens - sum(length for _, length in segments)
        if missing > 0:
            segments.append((self.new_seed(), missing))
        elif missing < 0:
            # The last id may stand for fewer tokens than `unit`.
            seed, length = segments[-1]
            segments[-1] = (seed, length + missing)
        answer_seed = self.new_seed()
        if answer is not None and not missing and len(answer):
            _follow(stream, offset, _Stream(answer_seed, answer))
        return segments, answer_seed

    def _followed(self, ids: Int64) -> tuple[_Stream, int, list[Segment]]:
        """Find the streams of these ids, and add a stream for ids that have none.

        Returns the last stream; how many of its ids are used; and, for all streams from the first
        to the last, their seeds and how many of their ids are used.
        """
        stream, offset, at = self._root, 0, 0
        path: list[Segment] = []
        while True:
            num_equal = _num_equal(stream.ids[offset:], ids[at:])
            offset += num_equal
            at += num_equal
            if offset:
                path.append((stream.seed, offset))
            if at == len(ids):
                return stream, offset, path
            following = stream.follower(offset, int(ids[at]))
            if following is None:
                following = _Stream(self.new_seed(), ids[at:])
                _follow(stream, offset, following)
            stream, offset = following, 0


def _follow(stream: _Stream, offset: int, following: _Stream) -> None:
    """Let `following` branch off after `offset` ids of a stream.

    This has no effect if the stream, or another branch there, goes on with the same id.
    """
    first = int(following.ids[0])
    if offset < len(stream.ids) and int(stream.ids[offset]) == first:
        return
    stream.followers.setdefault(offset, {}).setdefault(first, following)


def _num_equal(some: Int64, others: Int64) -> int:
    """How many leading ids are equal."""
    shorter = min(len(some), len(others))
    differ = np.flatnonzero(some[:shorter] != others[:shorter])
    return int(differ[0]) if len(differ) else shorter
