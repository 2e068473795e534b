"""Logs of conversations as text: ShareGPT's layout, and that of LMSYS-Chat-1M.

* `sharegpt`: `conversations`, a list of `{"from": "human", "value": "..."}`. The answers are from
  `gpt` (anon8231489123/ShareGPT_Vicuna_unfiltered, which SGLang's and vLLM's benchmarks read).
* `lmsys`: `conversation`, or `messages`, a list of `{"role": "user", "content": "..."}`. The
  answers have role `assistant` (lmsys/lmsys-chat-1m, allenai/WildChat-1M, and most gateways' logs).

Each answer is a request: its prompt is all text before it, its output the answer. Deliberate
differences from a server: the tokens that a chat template adds are not counted, and later prompts
quote the simulated answer in place of the recorded one, which has the same length.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.core.arrays import Int64
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.workload.limits import MAX_TOKENS
from sim.workload.prompts import ArrayPrompts
from sim.workload.traces.csv_traces import stamp_to_ns
from sim.workload.traces.fields import shown, time_ns
from sim.workload.traces.files import JsonObject, TextLine, read_json_items
from sim.workload.traces.rows import IntColumn, Sessions, TraceRows, require_rows

ToIds = Callable[[str], Int64]

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
