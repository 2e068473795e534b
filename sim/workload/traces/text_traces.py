"""Traces of texts: logs of conversations, and SGLang's auto-benchmark data sets.

Two layouts of logs, in which each answer is a request: its prompt is all text before it, its output
the answer. Deliberate differences from a server: the tokens that a chat template adds are not
counted, and later prompts quote the simulated answer in place of the recorded one, which has the
same length.

* `sharegpt`: `conversations`, a list of `{"from": "human", "value": "..."}`. The answers are from
  `gpt` (anon8231489123/ShareGPT_Vicuna_unfiltered, which SGLang's and vLLM's benchmarks read).
* `lmsys`: `conversation`, or `messages`, a list of `{"role": "user", "content": "..."}`. The
  answers have role `assistant` (lmsys/lmsys-chat-1m, allenai/WildChat-1M, and most gateways' logs).

`autobench` follows `python/sglang/benchmark/datasets/autobench.py` of SGLang's main branch (2026;
the 0.5.23 package does not contain it): JSON lines with prompts as text, messages or token ids.
Deliberate differences: there is no tokenizer here, so a prompt that is not given as token ids needs
`prompt_len`. Rows without content are errors, and so are prompts of several rounds or with images.
"""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.core.arrays import Int64
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.workload import MAX_TOKENS
from sim.workload.prompts import ArrayPrompts
from sim.workload.traces.csv_traces import stamp_to_ns
from sim.workload.traces.files import JsonObject, TextLine, read_json_items, read_json_lines
from sim.workload.traces.rows import (
    IntColumn,
    Sessions,
    TraceRows,
    require_rows,
    shown,
    time_ns,
    whole,
    why_not_whole,
)
from sim.workload.traces.text_tokens import ToIds, text_token_ids

_ANSWERS = frozenset({"assistant", "gpt", "chatgpt", "bing", "bard", "model"})
_TIME_KEYS = ("timestamp", "tstamp")


class _Layout(NamedTuple):
    lists: tuple[str, ...]
    role: str
    text: str


_LAYOUTS = {
    "sharegpt": _Layout(("conversations",), "from", "value"),
    "lmsys": _Layout(("conversation", "messages"), "role", "content"),
}


class _ConversationColumns:
    """The requests of all conversations, which grow while the file is read."""

    def __init__(self, to_ids: ToIds) -> None:
        self._to_ids = to_ids
        self.parts: list[Int64] = []
        self.ends, self.outputs, self.arrivals = IntColumn([0]), IntColumn(), IntColumn()
        self.offsets = IntColumn([0])
        self.rids: list[str] = []
        self.num_skipped = 0

    def add(
        self, messages: Iterator[tuple[TextLine, bool, str]], arrival_ns: int, most: int
    ) -> None:
        """Add a conversation's first requests, `most` of them."""
        conversation, unsent = len(self.offsets) - 1, 0
        first = len(self.outputs)
        for place, is_answer, text in messages:
            if len(self.outputs) - first == most:
                break
            ids = self._to_ids(text) if text else np.zeros(0, dtype=np.int64)
            if len(ids) > MAX_TOKENS:
                raise place.error("text", f"{len(ids)} tokens, above {MAX_TOKENS}")
            if is_answer and len(ids) and unsent:
                self.ends.append(self.ends.last + unsent)
                self.outputs.append(len(ids))
                self.arrivals.append(arrival_ns)
                self.rids.append(f"{conversation}-{len(self.outputs) - first - 1}")
                unsent = 0
                continue
            # An answer to nothing, or a second one in a row, is text that the next prompt has.
            self.num_skipped += is_answer
            self.parts.append(ids)
            unsent += len(ids)
        self._drop(unsent)
        if len(self.outputs) > first:
            self.offsets.append(len(self.outputs))

    def _drop(self, num_ids: int) -> None:
        """Forget the text after the last answer."""
        while num_ids:
            last = self.parts.pop()
            num_ids -= len(last)


def read_conversations(
    path: Path, layout: str, to_ids: ToIds, *, limit: int | None, max_turns: int | None
) -> TraceRows:
    """Read lines of JSON objects, or one JSON list of them.

    A conversation begins at its `timestamp` or `tstamp` (seconds, or an ISO 8601 text), if the
    file has them, counted from the earliest.
    """
    columns, has_times = _ConversationColumns(to_ids), None
    for line, row in read_json_items(path):
        if limit is not None and len(columns.outputs) >= limit:
            break
        time_key = next((key for key in _TIME_KEYS if row.get(key) is not None), None)
        has_times = time_key is not None if has_times is None else has_times
        if has_times != (time_key is not None):
            raise line.error("timestamp", "some conversations have one and some do not")
        start_ns = 0 if time_key is None else _start_ns(line, row, time_key)
        left = MAX_TOKENS if limit is None else limit - len(columns.outputs)
        most = left if max_turns is None else min(left, max_turns)
        columns.add(_messages(line, row, _LAYOUTS[layout]), start_ns, most)
    num_rows = len(columns.outputs)
    require_rows(num_rows, path)
    arrival_ns, offsets = columns.arrivals.to_numpy(), columns.offsets.to_numpy()
    session = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    notes = ["the tokens of a chat template are not counted"]
    if columns.num_skipped:
        notes.append(f"{columns.num_skipped:,} answers without text or question are no requests")
    return TraceRows(
        arrival_ns=arrival_ns - arrival_ns.min(),
        prompts=ArrayPrompts(np.concatenate(columns.parts), columns.ends.to_numpy()),
        output_tokens=columns.outputs.to_numpy(),
        rids=columns.rids,
        sessions=[str(number) for number in session.tolist()],
        has_times=bool(has_times),
        closed_loop=Sessions(offsets=offsets, pause_ns=None, history_row=offsets[session]),
        notes=tuple(notes),
    )


def _messages(
    line: TextLine, row: JsonObject, layout: _Layout
) -> Iterator[tuple[TextLine, bool, str]]:
    """The place, whether it is an answer, and the text of each message."""
    key = next((name for name in layout.lists if name in row), layout.lists[0])
    messages = row.get(key)
    if not isinstance(messages, list):
        reason = "missing" if key not in row else f"{shown(messages)} is not a list"
        raise line.error(key, reason)
    for number, message in enumerate(messages):
        place = line.below(f"{key}[{number}]")
        if not isinstance(message, dict):
            raise line.error(f"{key}[{number}]", f"{shown(message)} is not an object")
        role = message.get(layout.role)
        if not isinstance(role, str):
            raise place.error(layout.role, f"{shown(role)} is not text")
        yield place, role.lower() in _ANSWERS, _text(place, message, layout.text)


def _text(place: TextLine, message: JsonObject, key: str) -> str:
    """A message's text; of a list of parts, those that are text. Null is no text."""
    content = message.get(key)
    match content:
        case str():
            return content
        case None:
            if key not in message:
                raise place.error(key, "missing")
            return ""
        case list():
            texts = [part.get("text") for part in content if isinstance(part, dict)]
            return "".join(text for text in texts if isinstance(text, str))
    raise place.error(key, f"{shown(content)} is not text")


def _start_ns(line: TextLine, row: JsonObject, key: str) -> int:
    value = row[key]
    if not isinstance(value, str):
        return time_ns(line, row, key, unit_ns=NS_PER_S)
    at_ns = stamp_to_ns(line, key, value)
    if not 0 <= at_ns <= MAX_TIME_NS:
        raise line.error(key, f"{shown(value)} is not from 1970 to 2116")
    return at_ns


_OUTPUT_KEYS = ("output_len", "max_tokens", "max_completion_tokens", "completion_tokens")
_DEFAULT_OUTPUT_LEN = 256  # as in SGLang
_MAX_TOKEN_ID = (1 << 31) - 1


def read_autobench(path: Path, *, limit: int | None) -> TraceRows:
    """Read the rows. Unknown fields, which SGLang passes to its API, are ignored.

    `timestamp` is in ms; time counts from the earliest row. Without time stamps all requests arrive
    at once, as with an unlimited request rate. The first of `output_len, max_tokens,
    max_completion_tokens, completion_tokens` is the output length, 256 if there is none.
    """
    arrivals, outputs, num_tokens = IntColumn(), IntColumn(), IntColumn()
    contents: list[str | Int64] = []
    timed = None
    for line, row in islice(read_json_lines(path), limit):
        has_time = row.get("timestamp") is not None
        timed = has_time if timed is None else timed
        if timed != has_time:
            raise line.error("timestamp", "some rows have one and some do not")
        arrivals.append(time_ns(line, row, "timestamp") if has_time else 0)
        content = _content(line, row)
        contents.append(content)
        num_tokens.append(_prompt_len(line, row, content))
        outputs.append(_output_len(line, row))
    require_rows(len(arrivals), path)
    arrival_ns = arrivals.to_numpy()
    return TraceRows(
        arrival_ns=arrival_ns - arrival_ns.min(),
        prompts=_prompts(contents, num_tokens.to_numpy()),
        output_tokens=outputs.to_numpy(),
        has_times=bool(timed),
    )


def _prompts(contents: list[str | Int64], num_tokens: Int64) -> ArrayPrompts:
    texts = [content for content in contents if isinstance(content, str)]
    is_text = np.array([isinstance(content, str) for content in contents])
    made = iter(text_token_ids(texts, num_tokens[is_text]))
    ids = [next(made) if isinstance(content, str) else content for content in contents]
    return ArrayPrompts(np.concatenate(ids), np.concatenate(([0], np.cumsum(num_tokens))))


def _content(line: TextLine, row: JsonObject) -> str | Int64:
    """The prompt's token ids, or its text; messages become text as JSON."""
    if row.get("image_data"):
        raise line.error("image_data", "prompts with images are not supported")
    for key in ("messages", "prompt", "prompt_origin"):
        value = _unpacked(row.get(key))
        if value:
            return _checked(line, key, value)
    # The older layout: a system prompt and turns. If their number is even, the last is the answer.
    turns = row.get("content")
    if "system" in row and isinstance(turns, list) and turns:
        asked = turns[:-1] if len(turns) % 2 == 0 else turns
        return json.dumps([row["system"], *asked], default=str)
    raise line.error("prompt", "missing")


def _unpacked(value: object) -> object:
    """The list or object that a text holds as JSON; other values as they are."""
    if isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _checked(line: TextLine, key: str, value: object) -> str | Int64:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(type(item) is int for item in value):
        if not all(0 <= item <= _MAX_TOKEN_ID for item in value):
            bad = next(item for item in value if not 0 <= item <= _MAX_TOKEN_ID)
            raise line.error(key, why_not_whole(bad, 0, _MAX_TOKEN_ID))
        return np.array(value, dtype=np.int64)
    if isinstance(value, list) and all(
        isinstance(item, dict) and "role" in item and item.get("content") is not None
        for item in value
    ):
        return json.dumps([[item["role"], item["content"]] for item in value], default=str)
    if isinstance(value, list) and all(isinstance(item, str | list) for item in value):
        raise line.error(key, "prompts of several rounds are not supported")
    raise line.error(key, f"{shown(value)} is neither text, nor messages, nor token ids")


def _prompt_len(line: TextLine, row: JsonObject, content: str | Int64) -> int:
    given = row.get("prompt_len")
    if isinstance(content, str):
        if given is None:
            raise line.error("prompt_len", "missing, and there is no tokenizer to count the text")
        return whole(line, row, "prompt_len")
    if given is not None and whole(line, row, "prompt_len") != len(content):
        raise line.error("prompt_len", f"is {given}, but there are {len(content)} token ids")
    if len(content) > MAX_TOKENS:
        raise line.error("prompt", f"{len(content)} tokens, above {MAX_TOKENS}")
    return len(content)


def _output_len(line: TextLine, row: JsonObject) -> int:
    key = next((key for key in _OUTPUT_KEYS if row.get(key) is not None), None)
    return _DEFAULT_OUTPUT_LEN if key is None else whole(line, row, key)
